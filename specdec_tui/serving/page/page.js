// What the page adds to Textual's terminal: where the app is, the keyboard's focus, and why it has ended.
(() => {
  const query = location.search;
  // A token does not stay in the address, where others would read it.
  if (query) history.replaceState(null, "", location.pathname);

  const find = (selector) => document.querySelector(selector);

  const why = (event) =>
    event.reason || (event.code === 1000 ? "The app was left." : "The server has gone: what stands here stays.");

  const Socket = window.WebSocket;
  window.WebSocket = class extends Socket {
    constructor(...given) {
      super(...given);
      this.addEventListener("open", () => find(".xterm-helper-textarea")?.focus());
      this.addEventListener("close", (event) => {
        find("#ended span").textContent = why(event);
      });
    }
  };

  document.addEventListener("DOMContentLoaded", () => {
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    find("#terminal").dataset.sessionWebsocketUrl = `${scheme}//${location.host}/ws`;
    find("#ended button").addEventListener("click", () => location.reload());
  });
})();
