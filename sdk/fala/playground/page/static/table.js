// The unseen posts with every model's answer. Rows are made once; then their values change in
// place, so that bars move and the focus stays where it is.

import { element, hundredths, number, share } from "./text.js";

const TITLES = { old: "Old", vendor: "Vendor", instant: "At once", mine: "Yours" };

export const title = (key, alone) => (alone ? "Your model" : TITLES[key]);

let differing = false; // show only posts on which the models differ
let shape = "";
let rows = [];
let heads = {};

/** Show other posts: only those on which the models differ, or the first ones again. */
export const turn = () => (differing = !differing);

/** Show the posts of a view. `check` is called with a post and the visitor's label. */
export function showTable(table, view, check) {
  const keys = view.columns.map((column) => column.key);
  if (keys.length === 1) differing = false;
  const posts = differing ? view.differing : view.posts;
  const labelling = view.who !== "reader";
  const wanted = `${keys} ${labelling} ${posts.map((post) => post.text)}`;
  if (wanted !== shape) {
    shape = wanted;
    build(table, posts, keys, labelling, check);
  }
  for (const column of view.columns) head(heads[column.key], column, view, keys.length === 1);
  posts.forEach((post, at) => fill(rows[at], post, view, labelling));
}

function build(table, posts, keys, labelling, check) {
  table.style.setProperty("--columns", keys.length);
  table.classList.toggle("alone", keys.length === 1);
  heads = {};
  const names = keys.map((key) =>
    element("th", { role: "columnheader", scope: "col" }, title(key, keys.length === 1)));
  const corner = element("th", { role: "columnheader", scope: "col", class: "corner" }, "Post");
  const line = element("tr", { role: "row", class: "titles" }, corner, ...names);
  const figures = keys.map((key) => (heads[key] = element("td", { role: "cell" })));
  const about = element("tr", { role: "row", class: "figures" },
    element("th", { role: "rowheader", scope: "row", class: "corner" }, "What it is"), ...figures);
  rows = posts.map((post) => row(post, keys, labelling, check));
  table.setAttribute("role", "table");
  table.replaceChildren(
    element("thead", { role: "rowgroup" }, line, about),
    element("tbody", { role: "rowgroup" }, ...rows.map((one) => one.line)),
  );
}

function row(post, keys, labelling, check) {
  const note = element("span", { class: "lost-note", hidden: "" }, "The old model was right here; the new one is wrong.");
  const labels = element("span", { class: "said" });
  const buttons = [];
  if (labelling) {
    labels.append("You say:");
    ["fine", "unwelcome"].forEach((word, label) => {
      const button = element("button", { type: "button", "aria-label": `You say ${word}: ${post.text}` }, word);
      button.addEventListener("click", () =>
        check(post.post, button.getAttribute("aria-pressed") === "true" ? null : label));
      buttons.push(button);
      labels.append(button);
    });
  }
  const name = element("th", { role: "rowheader", scope: "row" }, post.text, note, labels);
  const cells = Object.fromEntries(keys.map((key) => [key, cell()]));
  const line = element("tr", { role: "row" }, name, ...keys.map((key) => cells[key].cell));
  return { line, cells, note, labels, buttons };
}

/** A place for an answer: a mark, a probability, and a bar. */
export function cell(tag = "td", role = "cell") {
  const mark = element("span", { class: "mark", "aria-hidden": "true" });
  const figure = element("span");
  const word = element("span", { class: "unseen" });
  const line = element("b");
  const bar = element("div", { class: "bar", "aria-hidden": "true" }, element("i"), line);
  const answer = element(tag, { role, class: "answer" }, mark, figure, word, bar);
  return { cell: answer, mark, figure, word, bar, line };
}

/** `line` is where the bar has a line: where the vendor's model began, or the threshold. */
export function fillCell(parts, unwelcome, decided, line) {
  parts.cell.classList.toggle("no", decided);
  parts.mark.textContent = decided ? "✕" : "✓";
  parts.figure.textContent = hundredths(unwelcome);
  parts.word.textContent = decided ? " unwelcome" : " fine";
  parts.bar.style.setProperty("--part", unwelcome);
  parts.line.hidden = line === undefined;
  if (line !== undefined) parts.bar.style.setProperty("--line-at", line);
}

function fill(row, post, view, labelling) {
  row.line.classList.toggle("differ", post.differ);
  row.line.classList.toggle("lost", post.lost && view.stage === "shipped");
  row.note.hidden = !(post.lost && view.stage === "shipped");
  if (labelling) {
    row.buttons.forEach((button, label) => button.setAttribute("aria-pressed", post.label === label));
  } else {
    row.labels.textContent = `The reader says: ${post.label ? "unwelcome" : "fine"}`;
  }
  const alone = view.columns.length === 1;
  for (const column of view.columns) {
    const line = alone ? post.first : column.threshold;
    fillCell(row.cells[column.key], post.unwelcome[column.key], post.decided[column.key], line);
  }
}

function head(parts, column, view, alone) {
  const back = view.stage === "rolled back";
  const about = {
    old: "before",
    vendor: "not yours",
    instant: "0 passes",
    mine: alone ? "" : back ? "back again" : `${column.passes} passes`,
  };
  const best = Math.max(...view.columns.map((one) => one.auc ?? 0));
  const lines = [[column.backbone], [about[column.key]]];
  if (column.auc !== null) lines.push([`AUC ${share(column.auc)}`, column.auc === best]);
  if (column.of) {
    const few = `${column.right}/${column.of} right`;
    lines.push([view.who === "reader" ? `F1 ${share(column.f1)}` : few]);
  }
  if (!alone) lines.push([`${number(column.seconds, 1)} s`], [`${number(column.megabytes, 1)} MB`]);
  parts.replaceChildren(...lines.filter(([text]) => text).map(([text, first]) =>
    element(first ? "strong" : "span", {}, text)));
}
