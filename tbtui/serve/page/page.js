"use strict";
// Runs before textual.js, which opens the socket and draws the terminal.

// Wherever the page was found, behind a proxy's path too.
document.getElementById("terminal").dataset.sessionWebsocketUrl = new URL(
  "ws",
  location.href.split(/[?#]/)[0],
).href.replace(/^http/, "ws");

// Keys go to the run without a click first; the server says why it has closed a session.
window.WebSocket = class extends WebSocket {
  constructor(url) {
    super(url);
    this.addEventListener("open", () =>
      document.querySelector(".xterm-helper-textarea").focus(),
    );
    this.addEventListener("close", (event) => {
      document.getElementById("said").textContent =
        event.reason || "The connection to tbtui serve is gone.";
    });
  }
};

// What a terminal shows is a model's: nothing in it opens a page.
window.open = () => null;

document.getElementById("again").addEventListener("click", () => location.reload());
