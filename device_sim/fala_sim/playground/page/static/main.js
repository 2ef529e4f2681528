// The page: shows the server's view, and sends the visitor's acts.

import { act, follow } from "./api.js";
import { cell, fillCell, showFigures, showTable, shows, title } from "./table.js";
import { element, number } from "./text.js";

const at = (id) => document.getElementById(id);
let view = null;
let before = null; // the answers that were shown last, to show what moved

const enable = (button, on) => at(button).setAttribute("aria-disabled", String(!on));

function say(text) {
  if (at("news").textContent !== text) at("news").textContent = text;
}

function complain(text) {
  at("failed").textContent = text;
  at("failed").hidden = !text;
}

async function attempt(name, body) {
  try {
    complain("");
    return await act(name, body);
  } catch (error) {
    if (error.status) complain(error.message); // `absent` shows that a server is gone
    return undefined;
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
// Only from within the card: a single letter must not act while the visitor writes elsewhere.
at("card").addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
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
    parts.cell.append(element("span", { class: "quiet" }, `${answer.backbone}, ${number(answer.milliseconds, 1)} ms`));
    return parts.cell;
  }));
}

const taste = (reader) => `Reader ${reader} ${view.tastes[reader - 1]}.`;

function showMaking() {
  const open = view.stage === "labelling";
  at("make").hidden = !open;
  if (!open) return;
  const watched = view.who === "reader";
  const labelled = Math.min(view.labelled, view.wanted);
  at("card").hidden = watched || !view.next;
  at("post").textContent = view.next?.text ?? "";
  at("count").textContent = `Is this post welcome to you? ${labelled} of ${view.wanted} labelled`;
  at("labels").max = view.wanted;
  at("labels").value = labelled;
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
    at("moved").textContent = `The last labels moved the model's answer most on “${most}”`;
    say(`${view.labelled} labelled.`);
  } else if (!view.labelled) {
    at("moved").textContent = "";
    say("");
  }
  before = { labelled: view.labelled, now };
}

function showRelease() {
  const here = view.stage !== "labelling";
  const focused = document.activeElement === at("ship");
  const from = document.body.dataset;
  if (from.stage && (from.stage !== view.stage || (view.busy === "refine" && !from.busy))) showTop();
  at("ship").hidden = here;
  const enough = view.labelled >= view.wanted;
  at("ship-why").hidden = here || (view.labelled > 0 && !enough);
  at("ship-why").textContent = enough
    ? "These are enough labels. Press the button."
    : "Label a post first: nothing is personal yet.";
  at("shipped").hidden = !here;
  enable("ship", !here && view.labelled > 0 && !view.busy);
  if (!here) {
    if (view.busy === "ship") say("The new backbone is being installed.");
    return;
  }
  const back = view.stage === "rolled back";
  const costs = view.costs;
  at("took").textContent = back
    ? `The old model is active again; that took ${number(costs.rollback_seconds ?? 0, 2)} s.`
    : `The new backbone is active. That took ${number(costs.replace_seconds ?? 0, 2)} s, and it read none of your posts for it.`;
  at("passes-text").textContent = `The new backbone has read ${view.passes} of your ${view.documents} posts: forward passes, none backward`;
  at("passes").max = view.documents;
  at("passes").value = view.passes;
  at("refine").textContent = view.more
    ? `Let the new backbone read ${view.more} ${view.passes ? "more " : ""}of your posts`
    : "The new backbone has read all your posts";
  enable("refine", !view.busy && !back && view.more);
  at("rollback").textContent = back ? "Return to the new model" : "Roll back to the old model";
  enable("rollback", view.busy !== "ship");
  if (focused) at("refine").focus({ preventScroll: true });
  if (view.busy === "refine") say(`${view.passes} posts read`);
  else say(`${at("took").textContent} ${view.verdict}`);
}

/** Bring the result into view where it is not beside the buttons. */
function showTop() {
  if (!matchMedia("(min-width: 60rem)").matches) at("result").scrollIntoView();
}

function showResult() {
  at("verdict").textContent = view.verdict;
  at("whom").textContent = view.who === "reader"
    ? `${taste(view.reader)} ${view.unwelcome} of these posts are unwelcome to this reader.`
    : "";
  showFigures(at("figures"), view);
  const lines = view.warnings.map((text) => element("p", { class: "lost" }, text));
  if (view.report && view.stage === "shipped") {
    lines.push(element("p", view.report.worse ? { class: "lost" } : {}, view.report.sentence));
  }
  at("warnings").replaceChildren(...lines);
  const alone = view.columns.length === 1;
  at("lit").hidden = alone;
  at("differing").hidden = alone;
  at("differing").textContent = `Only where they differ (${view.differ} of ${view.unseen})`;
  at("differing").setAttribute("aria-pressed", String(shows.differing));
}

function showCosts() {
  const costs = view.costs;
  const rows = [
    [`Learning from ${view.labelled} labels`, `${number(costs.learn_seconds, 2)} s`],
    ["Download of the new release", `${number(costs.new_megabytes, 1)} MB (old: ${number(costs.old_megabytes, 1)})`],
  ];
  if (costs.replace_seconds !== null) {
    rows.push(["Replacement, checks included", `${number(costs.replace_seconds, 2)} s, no forward pass`]);
    rows.push(["Refinement", `${number(costs.refine_seconds, 2)} s, ${view.passes} forward passes`]);
    rows.push(["Backward passes", "0"]);
  }
  if (costs.rollback_seconds !== null) rows.push(["Rollback", `${number(costs.rollback_seconds, 2)} s`]);
  rows.push([`On the disk, ${view.stage === "labelling" ? "your device" : "all four devices"}`, `${number(costs.disk_megabytes, 1)} MB`]);
  rows.push(["Memory of this whole server, at most", `${number(costs.memory_megabytes, 0)} MB`]);
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
  showMaking();
  showRelease();
  showTable(at("table"), view, (post, value) => attempt("check", { post, label: value }));
  showResult();
  showCosts();
  document.body.dataset.stage = view.stage;
  document.body.dataset.busy = view.busy ?? "";
}

function absent(error) {
  const command = element("code", {}, view?.resume ?? "fala demo");
  const parts = error.status
    ? ["This page is of an earlier start of the server. Open the address that the command printed last."]
    : view?.resume
      ? ["The server has ended. Nothing is lost: start it again with ", command, ", open the address that it prints, and continue where you were."]
      : ["The server has ended, and its devices with it. Start anew with ", command, "; with --device-dir it keeps them."];
  const wanted = parts.map((part) => part.textContent ?? part).join("");
  if (at("gone").textContent !== wanted) at("gone").replaceChildren(...parts);
  at("gone").hidden = false;
}

follow(changed, absent);
