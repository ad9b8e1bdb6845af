"""The app in a browser: models loaded once, a process for each tab, and the web server between them."""
