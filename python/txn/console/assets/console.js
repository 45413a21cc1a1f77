// The one script of the console. Every page works without it.
// It follows a page by server-sent events, and replaces the part that has changed.
"use strict";

// A search grows while the page loads. So its button has to be there before the page is whole.
(() => {
  function offerStop() {
    const place = document.getElementById("search");
    if (!place || place.childElementCount) return false;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "quiet small";
    button.textContent = "Stop the search";
    button.addEventListener("click", () => {
      window.stop();
      place.textContent = "Stopped. Search again to go on.";
    });
    place.append(button);
    place.hidden = false;
    window.addEventListener("load", () => button.remove());
    return true;
  }
  if (document.readyState === "complete" || offerStop()) return;
  const observer = new MutationObserver(() => offerStop() && observer.disconnect());
  observer.observe(document, { childList: true, subtree: true });
  window.addEventListener("load", () => observer.disconnect());
})();

function followPage() {
  const live = document.querySelector("[data-follow]");
  const place = document.getElementById("follow");
  if (!live || !place || !window.EventSource) return;

  let source = null;
  let isWanted = true;
  let pending = null;
  const button = document.createElement("button");
  button.type = "button";
  button.className = "quiet small";
  const state = document.createElement("span");
  state.setAttribute("role", "status");
  place.append(state, button);
  place.hidden = false;

  function show(words, isOn) {
    state.textContent = words;
    state.className = isOn ? "on" : "";
    button.textContent = isWanted ? "Pause" : "Follow";
  }

  function replace(html) {
    const parsed = new DOMParser().parseFromString(html, "text/html");
    const focused = live.contains(document.activeElement) ? document.activeElement : null;
    const href = focused && focused.getAttribute("href");
    const open = [...live.querySelectorAll("details[open][id]")].map((each) => each.id);
    live.replaceChildren(...parsed.body.childNodes);
    for (const id of open) document.getElementById(id)?.setAttribute("open", "");
    if (href) live.querySelector(`a[href="${CSS.escape(href)}"]`)?.focus({ preventScroll: true });
  }

  function isBusy() {
    const chosen = window.getSelection();
    const isSelecting = chosen && !chosen.isCollapsed && live.contains(chosen.anchorNode);
    return isSelecting || live.querySelector("input:focus, select:focus") !== null;
  }

  // A part that comes while the user selects text or fills in a field waits until then.
  function applyWhenIdle() {
    if (pending === null || isBusy()) return;
    const html = pending;
    pending = null;
    replace(html);
  }

  function offerLogin() {
    leave();
    isWanted = false;
    const link = document.createElement("a");
    link.href = `/login?next=${encodeURIComponent(location.pathname + location.search)}`;
    link.textContent = "Log in again";
    state.className = "";
    state.textContent = "The session has ended";
    button.replaceWith(link);
  }

  function follow() {
    if (source || !isWanted || document.hidden) return;
    source = new EventSource(location.href);
    show("Connecting", false);
    source.addEventListener("open", () => show("Live", true));
    source.addEventListener("part", (event) => {
      pending = JSON.parse(event.data);
      applyWhenIdle();
      show("Live", true);
    });
    source.addEventListener("trouble", (event) => show(JSON.parse(event.data), false));
    source.addEventListener("error", () => {
      if (source && source.readyState === EventSource.CLOSED) offerLogin();
      else show("No answer; trying again", false);
    });
  }

  function leave() {
    if (source) source.close();
    source = null;
    pending = null;
  }

  button.addEventListener("click", () => {
    isWanted = !isWanted;
    leave();
    show("Paused", false);
    follow();
  });
  document.addEventListener("visibilitychange", () => (document.hidden ? leave() : follow()));
  document.addEventListener("selectionchange", applyWhenIdle);
  live.addEventListener("focusout", () => setTimeout(applyWhenIdle));
  window.addEventListener("pagehide", leave);
  show("Connecting", false);
  follow();
}

if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", followPage);
else followPage();
