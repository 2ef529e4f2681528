// The page, which shows the server's view and sends the user's actions.

import { act, follow, pause } from "./api.js";
import { cell, fillCell, showFigures, showTable, shows, title } from "./table.js";
import { element, number } from "./text.js";

const at = (id) => document.getElementById(id);
let view = null;
let before = null; // the answers that were shown last, to show which ones have changed

const enable = (button, on) => at(button).setAttribute("aria-disabled", String(!on));

function say(text) {
  if (at("news").textContent !== text) at("news").textContent = text;
}

function complain(text) {
  at("failed").textContent = text;
  at("failed").hidden = !text;
}

const running = new Set(); // actions whose outcome is not shown yet; a second press does nothing

async function attempt(name, body) {
  const key = `${name} ${body?.post}`;
  if (running.has(key)) return undefined;
  running.add(key);
  try {
    complain("");
    const done = await act(name, body);
    while (view.version < done.version && at("gone").hidden) await pause(.02);
    return done.answer;
  } catch (error) {
    if (error.status) complain(error.message); // `absent` shows that a server is gone
    return undefined;
  } finally {
    running.delete(key);
  }
}

function on(id, work) {
  at(id).addEventListener("click", () => {
    if (at(id).getAttribute("aria-disabled") !== "true") work();
  });
}

const label = (value) => view?.next && attempt("label", { post: view.next.post, label: value });
on("fine", () => label(0));
on("unwelcome", () => label(1));
on("watch", () => attempt("watch", { reader: Number(at("reader").value) }));
on("ship", () => attempt("ship"));
on("refine", () => attempt("refine"));
on("rollback", () => attempt("rollback"));
on("stop", () => attempt("stop"));
on("differing", () => {
  shows.differing = !shows.differing;
  changed(view);
});
on("again", async () => {
  if ((await attempt("again")) === undefined) return;
  at("ask").reset();
  at("answers").replaceChildren();
  at("reader").selectedIndex = 0;
});
at("reader").addEventListener("change", () => showMaking());
const visible = (node) => node.offsetParent !== null;
// Digits work everywhere except in fields that take text. Some keyboards need Shift for a digit.
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || !visible(at("card"))) return;
  if (event.target.closest("input, select, textarea")) return;
  if (event.key === "1") at("fine").click();
  if (event.key === "2") at("unwelcome").click();
});
at("ask").addEventListener("submit", async (event) => {
  event.preventDefault();
  const answer = await attempt("ask", { text: at("text").value });
  if (answer) showAnswers(answer.answers);
});

function showAnswers(answers) {
  at("answers").replaceChildren(...answers.map((answer) => {
    const parts = cell("li", "listitem");
    fillCell(parts, answer.lean);
    parts.cell.prepend(element("strong", {}, title(answer.key, view)), element("br"));
    parts.cell.append(element("span", { class: "quiet" }, `${answer.backbone}, answered in ${number(answer.milliseconds, 1)} ms`));
    return parts.cell;
  }));
}

const taste = (reader) => `Reader ${reader} ${view.tastes[reader - 1]}.`;

function showMaking() {
  const open = view.stage === "labelling";
  at("make").hidden = !open;
  if (!open) return;
  const watched = view.who === "reader";
  at("card").hidden = watched || !view.next;
  at("post").textContent = view.next?.text ?? "";
  const labelled = view.labelled > view.wanted ? `${view.labelled} labelled` : `${view.labelled} of ${view.wanted} labelled`;
  at("count").textContent = watched ? `The reader's posts: ${labelled}` : `Is this post welcome to you? ${labelled}`;
  at("labels").max = Math.max(view.wanted, view.labelled);
  at("labels").value = view.labelled;
  at("watching").hidden = view.who === "visitor" || (watched && !view.next);
  if (!at("reader").options.length) {
    at("reader").append(...view.tastes.map((_, place) => element("option", { value: place + 1 }, taste(place + 1))));
  }
  at("reader").disabled = view.labelled > 0;
  if (view.labelled) at("reader").value = view.reader;
  at("taste").textContent = taste(at("reader").value);
  for (const button of ["watch", "fine", "unwelcome"]) enable(button, !view.busy);
  const now = view.posts.map((post) => post.lean.mine);
  if (before && before.labelled < view.labelled) {
    const moves = now.map((value, post) => Math.abs(value - before.now[post]));
    const most = view.posts[moves.indexOf(Math.max(...moves))].text;
    at("moved").textContent = `Among the unseen posts below, the last labels moved the model most on “${most}”`;
    say(`${view.labelled} labelled.`);
  } else if (!view.labelled) {
    at("moved").textContent = "";
    say("");
  }
  before = { labelled: view.labelled, now };
}

function showRelease() {
  const here = view.stage !== "labelling";
  const from = document.body.dataset;
  if (from.stage && (from.stage !== view.stage || (view.busy === "refine" && !from.busy))) showTop();
  at("ship").hidden = here;
  const enough = view.labelled >= view.wanted;
  at("ship-why").hidden = here || (view.labelled > 0 && !enough);
  at("ship-why").textContent = enough
    ? "Enough labels: install the new release."
    : "Label a post first: there is no personal model yet.";
  at("shipped").hidden = !here;
  enable("ship", !here && view.labelled > 0 && !view.busy);
  if (!here) {
    if (view.busy === "ship") say("The new release is being installed.");
    return;
  }
  const back = view.stage === "rolled back";
  const costs = view.costs;
  at("took").textContent = back
    ? `The old personal model is active again. The rollback took ${number(costs.rollback_seconds ?? 0, 2)} s.`
    : `The new release is active. The replacement took ${number(costs.replace_seconds ?? 0, 2)} s, without a forward pass.`;
  at("passes-text").textContent = `This device has ${view.documents} posts, ${view.labelled} of them labelled by ${view.who === "reader" ? "the reader" : "you"}. The new backbone has encoded ${view.passes || "none"}.`;
  at("passes").max = view.documents;
  at("passes").value = view.passes;
  at("refine").hidden = back || !view.more;
  at("refine").textContent = `Refine: encode ${view.more}${view.passes ? " more" : ""} posts`;
  enable("refine", !view.busy);
  at("report").textContent = view.report ?? "";
  at("rollback").textContent = back ? "Roll back again, to the new release" : "Roll back to the old personal model";
  enable("rollback", view.busy !== "ship");
  if (view.busy === "refine") say(`${view.passes} posts encoded.`);
  else say(`${at("took").textContent} ${view.verdict}`);
}

/** Scroll to the result if it is not beside the buttons. */
function showTop() {
  if (!matchMedia("(min-width: 60rem)").matches) at("result").scrollIntoView();
}

function showResult() {
  at("verdict").textContent = view.verdict;
  showFigures(at("figures"), view);
  at("changes").hidden = !view.changes?.right && !view.changes?.wrong;
  at("righted").textContent = view.changes?.right ?? "";
  at("wronged").textContent = view.changes?.wrong ?? "";
  const which = shows.differing
    ? `${view.differing.length} of the ${view.differ} unseen posts on which the models differ.`
    : `${view.posts.length} of ${view.unseen} unseen posts.`;
  at("whom").textContent = view.who === "reader"
    ? `${which} ${taste(view.reader)} ${view.unwelcome} of the ${view.unseen} are unwelcome to this reader.`
    : `${which} Label some to see which decisions are wrong.`;
  at("differing").hidden = view.columns.length === 1;
  at("differing").textContent = `Only where they differ (${view.differ} of ${view.unseen})`;
  at("differing").setAttribute("aria-pressed", String(shows.differing));
}

function showCosts() {
  const costs = view.costs;
  const seconds = (what, value) => [`Time: ${what}`, `${number(value, 2)} s`];
  const megabytes = (what, value, digits) => [what, `${number(value, digits)} MB`];
  const rows = [];
  if (view.labelled) rows.push(seconds(`learning the labels (${view.labelled})`, costs.learn_seconds));
  if (costs.replace_seconds !== null) {
    rows.push(seconds("replacement, including validation", costs.replace_seconds));
    if (view.passes) rows.push(seconds(`refinement, ${view.passes} forward passes`, costs.refine_seconds));
  }
  if (costs.rollback_seconds !== null) rows.push(seconds("rollback", costs.rollback_seconds));
  if (costs.replace_seconds !== null) {
    rows.push(["Forward passes of the new backbone", view.passes]);
    rows.push(["Backward passes", 0]);
  }
  rows.push(megabytes("Download: the old release", costs.old_megabytes, 1));
  rows.push(megabytes("Download: the new release", costs.new_megabytes, 1));
  rows.push(megabytes("Disk: the device with its models and posts", costs.disk_megabytes, 1));
  rows.push(megabytes("Memory: the server of this page, at most", costs.memory_megabytes, 0));
  at("costs").replaceChildren(...rows.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));
}

function changed(news) {
  view = news;
  at("gone").hidden = true;
  if (view.failed) complain(view.failed);
  const ready = view.stage !== "preparing";
  at("preparing").hidden = ready;
  at("walk").hidden = !ready;
  if (!ready) return;
  at("stop").hidden = view.busy !== "refine" && view.busy !== "watch";
  enable("again", view.busy !== "ship");
  const focused = document.activeElement;
  showMaking();
  showRelease();
  showTable(at("table"), view, (post, value) => attempt("check", { post, label: value }));
  showResult();
  showCosts();
  // If the focused button disappears, the next step gets the focus.
  if (at("acts").contains(focused) && !visible(focused)) {
    ["refine", "rollback", "ship"].map(at).find(visible).focus({ preventScroll: true });
  }
  document.body.dataset.stage = view.stage;
  document.body.dataset.busy = view.busy ?? "";
}

function absent(error) {
  const command = element("code", {}, view?.resume ?? "fala demo");
  const parts = error.status
    ? ["This page belongs to an earlier start of the server. Open the address that the command printed last."]
    : view?.resume
      ? ["The server has ended. Nothing is lost: start it again with ", command, ", open the address that it prints, and continue where you were."]
      : ["The server has ended, and its devices are deleted. Start again with ", command, "; with --device-dir it keeps them."];
  const wanted = parts.map((part) => part.textContent ?? part).join("");
  if (at("gone").textContent !== wanted) at("gone").replaceChildren(...parts);
  at("gone").hidden = false;
}

follow(changed, absent);
