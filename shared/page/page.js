// Keeps the page live: asks for it again while somebody can see it, and replaces the parts that differ.
(() => {
  "use strict";
  const main = document.getElementById("main");
  const live = document.getElementById("live");
  const told = document.getElementById("told");
  const parts = (root) => new Map([...root.querySelectorAll("[data-live]")].map((e) => [e.id, e]));
  const html = new Map([...parts(main)].map(([id, e]) => [id, e.outerHTML])); // as the server sent it
  let every = Number(main.dataset.every) * 1000;
  let failures = 0;
  let timer = 0;

  const say = (state, text) => {
    live.hidden = false;
    live.dataset.state = state;
    live.textContent = text;
  };

  // A cell that is still there and says something else is marked for a moment.
  const markMoved = (before, after) => {
    for (const cell of after.querySelectorAll("[data-cell]")) {
      const was = [...before.querySelectorAll("[data-cell]")].find((c) => c.dataset.cell === cell.dataset.cell);
      if (!was || was.textContent.trim() !== cell.textContent.trim()) cell.classList.add("moved");
    }
  };

  // Focus stays where it was, on the same link or button if it is still there.
  const replace = (old, fresh) => {
    const focused = old.contains(document.activeElement) ? document.activeElement : null;
    const same = (e) => focused && e.tagName === focused.tagName && (focused.id ? e.id === focused.id : e.outerHTML === focused.outerHTML || (e.href && e.href === focused.href));
    const open = [...old.querySelectorAll("details[id][open]")].map((d) => d.id);
    const scrolled = [...old.querySelectorAll(".scroll")].map((e) => e.scrollLeft);
    markMoved(old, fresh);
    old.replaceWith(fresh);
    fresh.querySelectorAll(".scroll").forEach((e, i) => { e.scrollLeft = scrolled[i] || 0; });
    for (const id of open) document.getElementById(id)?.setAttribute("open", "");
    if (focused) ([...fresh.querySelectorAll("a, button, summary, [tabindex]")].find(same) || main).focus({ preventScroll: true });
  };

  const take = (text) => {
    const next = new DOMParser().parseFromString(text, "text/html");
    const nextMain = next.getElementById("main");
    if (!nextMain) throw new Error("no page");
    every = Number(nextMain.dataset.every) * 1000;
    document.title = next.title;
    document.getElementById("seen").textContent = next.getElementById("seen").textContent;
    const here = parts(main);
    for (const [id, fresh] of parts(nextMain)) {
      const sent = fresh.outerHTML;
      if (!here.has(id) || html.get(id) === sent) continue;
      html.set(id, sent);
      replace(here.get(id), document.importNode(fresh, true));
    }
    const was = document.getElementById("summary");
    const summary = next.getElementById("summary");
    if (was.textContent !== summary.textContent) {
      was.textContent = told.textContent = summary.textContent;
      was.hidden = summary.hidden;
    }
  };

  const ask = async () => {
    clearTimeout(timer);
    if (document.hidden) return;
    try {
      const answer = await fetch(location.href, { cache: "no-store", headers: { Accept: "text/html" }, signal: AbortSignal.timeout(30000) });
      if (!answer.ok) throw new Error("status " + answer.status);
      take(await answer.text());
      if (failures > 2) told.textContent = "This page is live again.";
      failures = 0;
      say("on", "live");
    } catch {
      failures++;
      say("off", "no answer; as of");
      if (failures === 3) told.textContent = "The page gets no answer; what it shows is old.";
    }
    wait();
  };
  const wait = () => {
    clearTimeout(timer);
    if (every > 0) timer = setTimeout(ask, Math.min(every * 2 ** Math.min(failures, 4), 60000));
  };

  // Once is enough: the second click on a button that is at work does nothing.
  addEventListener("submit", (event) => {
    if (event.target.method !== "post") return;
    if (event.target.dataset.sent) event.preventDefault();
    event.target.dataset.sent = "yes";
    const button = event.submitter;
    if (button?.dataset.busy) setTimeout(() => { button.textContent = button.dataset.busy; button.setAttribute("aria-disabled", "true"); });
  });
  addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });

  if (every > 0) {
    say("on", "live");
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) say("off", "paused"); else ask();
    });
    wait();
  }
})();
