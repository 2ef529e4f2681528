// The unseen posts with every model's answer. Rows are made once; then their values change in
// place, so that bars move and the focus stays where it is.

import { element, hundredths, number, share } from "./text.js";

const TITLES = { old: "Old", vendor: "Vendor", instant: "At once" };

/** A column's title. */
export function title(key, view) {
  const reader = view.who === "reader";
  if (view.columns.length === 1) return reader ? "The reader's model" : "Your model";
  return TITLES[key] ?? (reader ? "Reader's" : "Yours");
}

export const shows = { differing: false }; // only posts on which the models differ

let shape = "";
let rows = [];

/** Show the posts of a view. `check` is called with a post and the visitor's label. */
export function showTable(table, view, check) {
  const keys = view.columns.map((column) => column.key);
  if (keys.length === 1) shows.differing = false;
  const posts = shows.differing ? view.differing : view.posts;
  const labelling = view.who !== "reader";
  const wanted = `${keys} ${labelling} ${posts.map((post) => post.text)}`;
  if (wanted !== shape) {
    shape = wanted;
    build(table, posts, view, labelling, check);
  }
  posts.forEach((post, at) => fill(rows[at], post, view, labelling));
}

function build(table, posts, view, labelling, check) {
  const keys = view.columns.map((column) => column.key);
  table.classList.toggle("alone", keys.length === 1);
  rows = posts.map((post) => row(post, keys, labelling, check));
  fillTable(table, view, "Post", rows.map((one) => one.line));
}

/** A head with the models' titles, and rows. */
function fillTable(table, view, first, lines) {
  table.style.setProperty("--columns", view.columns.length);
  const names = view.columns.map((column) =>
    element("th", { role: "columnheader", scope: "col" }, title(column.key, view)));
  const corner = element("th", { role: "columnheader", scope: "col", class: "corner" }, first);
  table.setAttribute("role", "table");
  table.replaceChildren(
    element("thead", { role: "rowgroup" }, element("tr", { role: "row", class: "titles" }, corner, ...names)),
    element("tbody", { role: "rowgroup" }, ...lines),
  );
}

/** Show what each model is, and how often it is wrong. */
export function showFigures(table, view) {
  const name = element("th", { role: "rowheader", scope: "row", class: "corner" }, "What it is");
  const cells = view.columns.map((column) => element("td", { role: "cell" }, ...figures(column, view)));
  fillTable(table, view, "Model", [element("tr", { role: "row" }, name, ...cells)]);
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

/** A place for an answer: a mark for the decision, and how sure it is, as a figure and a bar. */
export function cell(tag = "td", role = "cell") {
  const mark = element("span", { class: "mark", "aria-hidden": "true" });
  const figure = element("span");
  const word = element("span", { class: "unseen" });
  const bar = element("div", { class: "bar", "aria-hidden": "true" }, element("i"));
  const answer = element(tag, { role, class: "answer" }, mark, figure, word, bar);
  return { cell: answer, mark, figure, word, bar };
}

/** `lean`: how sure a model is that a post is unwelcome; below 0, that it is fine. */
export function fillCell(parts, lean) {
  const unwelcome = lean > 0;
  parts.cell.classList.toggle("no", unwelcome);
  parts.mark.textContent = unwelcome ? "✕" : "✓";
  parts.figure.textContent = hundredths(Math.abs(lean));
  parts.word.textContent = unwelcome ? " sure that it is unwelcome" : " sure that it is fine";
  parts.bar.style.setProperty("--part", Math.abs(lean));
}

function fill(row, post, view, labelling) {
  const lost = post.lost && view.stage === "shipped";
  row.line.classList.toggle("differ", post.differ);
  row.line.classList.toggle("lost", lost);
  row.note.hidden = !lost;
  if (labelling) {
    row.buttons.forEach((button, label) => button.setAttribute("aria-pressed", post.label === label));
  } else {
    row.labels.textContent = `The reader says: ${post.label ? "unwelcome" : "fine"}`;
  }
  for (const column of view.columns) fillCell(row.cells[column.key], post.lean[column.key]);
}

function figures(column, view) {
  const alone = view.columns.length === 1;
  const about = {
    old: "before",
    vendor: "not yours",
    instant: "no text read",
    mine: view.stage === "rolled back" ? "back again" : `${view.passes || "no"} texts read`,
  };
  const lines = [column.backbone];
  if (!alone) lines.push(about[column.key]);
  if (column.auc !== null) lines.push(`AUC ${share(column.auc)}`);
  if (!alone) lines.push(`${number(column.megabytes, 1)} MB`);
  const wrong = view.counted ? [element("strong", {}, `${column.wrong} of ${view.counted} wrong`)] : [];
  return [...wrong, ...lines.map((text) => element("span", {}, text))];
}
