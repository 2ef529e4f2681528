// The page: shows the server's view, and sends the visitor's acts.

import { act, follow } from "./api.js";
import { cell, fillCell, showTable, title, turn } from "./table.js";
import { element, number, share } from "./text.js";

const at = (id) => document.getElementById(id);
let view = null;
let before = null; // the probabilities that were shown last, to show what moved

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
  at("differing").setAttribute("aria-pressed", String(turn()));
  changed(view);
});
on("again", () => attempt("again"));
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
    fillCell(parts, answer.unwelcome, answer.decided);
    parts.cell.prepend(element("strong", {}, title(answer.key, answers.length === 1)), element("br"));
    parts.cell.append(element("span", { class: "quiet" }, `${answer.backbone}, ${number(answer.milliseconds, 1)} ms`));
    return parts.cell;
  }));
}

function showMaking() {
  const open = view.stage === "labelling";
  at("make").hidden = !open;
  if (!open) return;
  const watched = view.who === "reader";
  const free = !view.busy;
  at("card").hidden = watched || !view.next;
  at("post").textContent = view.next?.text ?? "";
  at("count").textContent = `Is this post welcome to you? ${Math.min(view.labelled, view.wanted)} of ${view.wanted} labelled`;
  at("labels").max = view.wanted;
  at("labels").value = Math.min(view.labelled, view.wanted);
  at("watching").hidden = view.who === "visitor" || (watched && !view.next);
  if (!at("reader").options.length) {
    at("reader").append(...view.readers.map(({ number: one, average }) =>
      element("option", { value: one }, `Reader ${one}${average ? ", near the average" : ""}`)));
    at("reader").value = view.reader;
  }
  at("reader").disabled = watched && view.labelled > 0;
  if (at("reader").disabled) at("reader").value = view.reader;
  enable("watch", free);
  enable("fine", free);
  enable("unwelcome", free);
  const now = view.posts.map((post) => post.unwelcome.mine);
  if (before && before.labelled < view.labelled) {
    const moves = now.map((value, post) => Math.abs(value - before.now[post]));
    const mean = moves.reduce((sum, move) => sum + move, 0) / moves.length;
    const most = view.posts[moves.indexOf(Math.max(...moves))].text;
    at("moved").textContent = `The last labels moved the posts by ${number(100 * mean, 1)} points on average, most of all “${most}”`;
    say(`${view.labelled} labelled. The unseen posts moved by ${number(100 * mean, 1)} points.`);
  } else if (!view.labelled) {
    at("moved").textContent = "";
  }
  before = { labelled: view.labelled, now };
}

function showRelease() {
  const here = view.stage !== "labelling";
  const focused = document.activeElement === at("ship");
  at("ship").hidden = here;
  const enough = view.labelled >= view.wanted;
  at("ship-why").hidden = here || (view.labelled > 0 && !enough);
  at("ship-why").textContent = enough
    ? "Enough labels: press it."
    : "Label a post first: nothing is personal yet.";
  at("shipped").hidden = !here;
  enable("ship", !here && view.labelled > 0 && !view.busy);
  if (!here) {
    if (view.busy === "ship") say("The new backbone is being installed.");
    return;
  }
  const back = view.stage === "rolled back";
  const costs = view.costs;
  at("sentence").textContent = back
    ? `The old model is active again; that took ${number(costs.rollback_seconds ?? 0, 2)} s.`
    : `${view.sentence} That took ${number(costs.replace_seconds ?? 0, 2)} s and no forward pass of your posts.`;
  const most = Math.max(view.target, 60);
  at("passes-text").textContent = `${view.passes} of your ${view.documents} posts passed through the new backbone, none backward`;
  at("passes").max = most;
  at("passes").value = view.passes;
  at("stopped").textContent = view.stopped;
  enable("refine", !view.busy && !back && view.passes < view.documents);
  at("rollback").textContent = back ? "Return to the new model" : "Roll back";
  enable("rollback", view.busy !== "ship");
  if (focused) at("refine").focus();
  if (view.busy === "refine") say(`${view.passes} forward passes`);
  else if (back) say("Rolled back to the old model.");
  else say(`The new backbone is active, after ${view.passes} forward passes.`);
}

function showVerdict() {
  const one = view.columns.length === 1;
  at("legend").textContent = one
    ? "The probability that a post is unwelcome; the line in a bar is where the vendor's model began. ✕: hidden from you, by a threshold learned from your labels."
    : "The probability that a post is unwelcome; the line in a bar is the model's threshold, and ✕ what it hides. Lit: the models differ.";
  at("differing").hidden = one;
  at("differing").textContent = `Only where they differ (${view.differ} of ${view.unseen})`;
  const compared = view.compared;
  at("verdict").hidden = !compared;
  if (!compared) return;
  const { lost, gained, of, better } = compared;
  const auc = (key) => {
    const { auc: value, right } = view.columns.find((column) => column.key === key);
    return value === null ? `${right} right` : `AUC ${share(value)}`;
  };
  const lines = [element("p", lost ? { class: "lost" } : {},
    `On ${lost} of ${of} posts the old model was right and the new one is wrong; on ${gained} it is the other way round.`)];
  const names = { old: "The old model was better on these posts", vendor: "The vendor's new model is better on these posts" };
  for (const key of better) {
    const advice = key === "old" ? " One press rolls back." : "";
    lines.push(element("p", { class: "lost" }, `${names[key]}: ${auc(key)} against ${auc("mine")}.${advice}`));
  }
  at("verdict").replaceChildren(...lines);
}

function showCosts() {
  const costs = view.costs;
  const rows = [
    [`Learning from ${view.labelled} labels`, `${number(costs.learn_seconds, 2)} s`],
    ["Download of the new release", `${number(costs.new_megabytes, 1)} MB (old: ${number(costs.old_megabytes, 1)})`],
  ];
  if (costs.replace_seconds !== null) {
    rows.push(["Replacement, checks included", `${number(costs.replace_seconds, 2)} s, 0 passes`]);
    rows.push(["Refinement", `${number(costs.refine_seconds, 2)} s, ${view.passes} passes`]);
    rows.push(["Backward passes", "0"]);
  }
  if (costs.rollback_seconds !== null) rows.push(["Rollback", `${number(costs.rollback_seconds, 2)} s`]);
  rows.push([`On the disk, ${view.columns.length === 1 ? "your device" : "all four devices"}`, `${number(costs.disk_megabytes, 1)} MB`]);
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
  showVerdict();
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
