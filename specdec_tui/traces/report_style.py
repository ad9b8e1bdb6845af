"""The style sheet of reports. Colours are those of the app's light and dark theme; paper gets the light ones.

Nothing is faded by opacity: all text has a contrast of at least 4.5 to whatever it stands on.
"""

STYLE = """
:root { color-scheme: light dark; --ground: #fcfbf8; --panel: #f0ede6; --ink: #1d232b; --quiet: #59616c;
  --edge: #d3cec2; --accepted: #12662f; --rejected: #b3201b; --resampled: #964200; --bonus: #0a58b5;
  --unverified: #5a626d; --tone-0: #59616c; --tone-1: #0a58b5; --tone-2: #a04100; --tone-3: #6639ba;
  --tone-4: #12662f; --tone-5: #b3201b; --tone-6: #00636f;
  --tone-7: #8f1d6c; }
@media screen and (prefers-color-scheme: dark) { :root { --ground: #0e1217; --panel: #171e27; --ink: #dfe5ec;
  --quiet: #93a0b0; --edge: #3b4654; --accepted: #7ee2a0; --rejected: #ff8a80; --resampled: #ffb066;
  --bonus: #79b8ff; --unverified: #8f9bab; --tone-0: #aab4c0; --tone-1: #79b8ff; --tone-2: #ffb066;
  --tone-3: #c3a6ff; --tone-4: #7ee2a0; --tone-5: #ff8a80;
  --tone-6: #6fd6e4; --tone-7: #ff9ed6; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem; max-width: 76rem; background: var(--ground); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
h3 { font-size: 1rem; margin: 1.4rem 0 .3rem; }
.quiet, figcaption, .legend { color: var(--quiet); } p { margin: .3rem 0; }
pre, .tokens { background: var(--panel); padding: .8rem 1rem; margin: .4rem 0; border-radius: 6px;
  white-space: pre-wrap; overflow-wrap: anywhere; font: 14px/1.65 ui-monospace, monospace; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .7rem; border-bottom: 1px solid var(--edge); text-align: left; vertical-align: top;
  overflow-wrap: anywhere; }
.figures th, .figures td { white-space: nowrap; text-align: right; padding: .25rem .55rem; }
.figures th:first-child, .figures :is(th, td):nth-child(4) { text-align: left; }
thead th, tbody th { font-weight: 600; } thead th { color: var(--quiet); }
.accepted { color: var(--accepted); } .sampled { color: var(--ink); }
.resampled { color: var(--resampled); font-weight: 700; }
.bonus { color: var(--bonus); font-weight: 700; }
.rejected { color: var(--rejected); text-decoration: line-through; }
.unverified { color: var(--unverified); font-style: italic; }
.tokens span:hover, .tokens span:focus { background: var(--ground); outline: 1px solid var(--quiet); }
.empty::before { content: "∅"; } .break::before { content: "↵"; color: var(--quiet); font-weight: 400; }
.legend span { margin-right: 1.1rem; white-space: nowrap; }
#lost:not(:checked) ~ main .lost { display: none; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(20rem, 1fr)); gap: 1rem; }
figure { margin: 0; break-inside: avoid; max-width: 38rem; } figcaption { font-size: .9rem; }
svg { width: 100%; height: auto; }
svg text { font: 13px system-ui, sans-serif; fill: var(--quiet); }
.grid { stroke: var(--edge); stroke-width: .7; } .line { fill: none; stroke-width: 2; }
.key { display: inline-block; width: 1.6em; border-top: 3px solid; margin-right: .4em; vertical-align: middle; }
.line.tone-0 { stroke-dasharray: 5 3; } .key.tone-0 { border-top-style: dashed; }
""" + "".join(
    f".line.tone-{n} {{ stroke: var(--tone-{n}); }} .bar.tone-{n} {{ fill: var(--tone-{n}); }} "
    f".key.tone-{n} {{ border-color: var(--tone-{n}); }}\n"
    for n in range(8)
)
STYLE += """
@media print { :root { --ground: #fff; } .legend { break-inside: avoid; }
  body { max-width: none; padding: 0; font-size: 11pt; }
  pre, .tokens { background: none;
  border: 1px solid var(--edge); } h2, h3 { break-after: avoid; } .screen { display: none; }
  .wide { overflow: visible; } .figures { font-size: 7.5pt; } .figures :is(th, td) { padding: .15rem .3rem; } }
"""
