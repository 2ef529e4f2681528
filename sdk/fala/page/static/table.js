// The unseen posts with every model's answer. Rows are made once; then their values change in
// place, so that bars move and the focus stays where it is.

import { element, hundredths, number } from "./text.js";

const TITLES = {
  old: ["Old model", "goes on"],
  vendor: ["Vendor's new", "not yours"],
  instant: ["At once", "0 passes"],
  mine: ["Your device", ""],
};

export const title = (key, alone) => (alone ? "Your model" : TITLES[key][0]);

let shape = "";
let rows = [];
let heads = {};

/** Show the posts of a view. `check` is called with a post and what the visitor says of it. */
export function showTable(table, view, check) {
  const keys = view.columns.map((column) => column.key);
  const own = view.who !== "reader";
  const wanted = `${keys} ${own} ${view.posts[0].text}`;
  if (wanted !== shape) {
    shape = wanted;
    build(table, view, keys, own, check);
  }
  for (const column of view.columns) head(heads[column.key], column, view, keys.length === 1);
  view.posts.forEach((post, at) => fill(rows[at], post, view, own));
}

function build(table, view, keys, own, check) {
  table.style.setProperty("--columns", keys.length);
  heads = {};
  const names = keys.map((key) => (heads[key] = element("th", { role: "columnheader", scope: "col" })));
  const corner = element("th", { role: "columnheader", scope: "col", class: "corner" }, "Post");
  const line = element("tr", { role: "row" }, corner, ...names);
  rows = view.posts.map((post, at) => row(post, at, keys, own, check));
  table.setAttribute("role", "table");
  table.replaceChildren(
    element("thead", { role: "rowgroup" }, line),
    element("tbody", { role: "rowgroup" }, ...rows.map((one) => one.line)),
  );
}

function row(post, at, keys, own, check) {
  const note = element("span", { class: "lost-note", hidden: "" }, "The old model was right here; the new one is wrong.");
  const said = element("span", { class: "said" });
  const buttons = [];
  if (own) {
    said.append("You say:");
    ["fine", "unwelcome"].forEach((word, label) => {
      const button = element("button", { type: "button", "aria-label": `You say ${word}: ${post.text}` }, word);
      button.addEventListener("click", () =>
        check(at, button.getAttribute("aria-pressed") === "true" ? null : label));
      buttons.push(button);
      said.append(button);
    });
  }
  const name = element("th", { role: "rowheader", scope: "row" }, post.text, note, said);
  const cells = Object.fromEntries(keys.map((key) => [key, cell()]));
  const line = element("tr", { role: "row" }, name, ...keys.map((key) => cells[key].cell));
  return { line, cells, note, said, buttons };
}

/** A place for an answer: a mark, a probability, and a bar. */
export function cell(tag = "td", role = "cell") {
  const mark = element("span", { class: "mark", "aria-hidden": "true" });
  const figure = element("span");
  const word = element("span", { class: "unseen" });
  const first = element("b");
  const bar = element("div", { class: "bar", "aria-hidden": "true" }, element("i"), first);
  const answer = element(tag, { role, class: "answer" }, mark, figure, word, bar);
  return { cell: answer, mark, figure, word, bar, first };
}

export function fillCell(place, unwelcome, decided, first) {
  place.cell.classList.toggle("no", decided);
  place.mark.textContent = decided ? "✕" : "✓";
  place.figure.textContent = hundredths(unwelcome);
  place.word.textContent = decided ? " unwelcome" : " fine";
  place.bar.style.setProperty("--part", unwelcome);
  place.first.hidden = first === undefined;
  if (first !== undefined) place.bar.style.setProperty("--first", first);
}

function fill(row, post, view, own) {
  row.line.classList.toggle("differ", post.differ);
  row.line.classList.toggle("lost", post.lost && view.stage === "shipped");
  row.note.hidden = !(post.lost && view.stage === "shipped");
  if (own) {
    row.buttons.forEach((button, label) => button.setAttribute("aria-pressed", post.label === label));
  } else {
    row.said.textContent = `The reader says: ${post.label ? "unwelcome" : "fine"}`;
  }
  const alone = view.columns.length === 1;
  for (const column of view.columns) {
    const first = alone ? post.first : undefined;
    fillCell(row.cells[column.key], post.unwelcome[column.key], post.decided[column.key], first);
  }
}

function head(place, column, view, alone) {
  const back = view.stage === "rolled back" && column.key === "mine";
  let about = TITLES[column.key][1];
  if (column.key === "mine") about = back ? "rolled back" : alone ? "" : `after ${column.passes} passes`;
  const best = Math.max(...view.columns.map((one) => one.auc ?? 0));
  const lines = [element("strong", {}, title(column.key, alone)), element("span", { class: "figure" }, [column.backbone, about].filter(Boolean).join(", "))];
  if (column.auc !== null) {
    lines.push(element("span", { class: column.auc === best ? "figure best" : "figure" }, `AUC ${number(column.auc, 3)}`));
  }
  if (column.of) lines.push(element("span", { class: "figure" }, `${column.right} of ${column.of} right`));
  if (!alone) lines.push(element("span", { class: "figure" }, `${number(column.seconds, 1)} s, ${number(column.megabytes, 1)} MB`));
  place.replaceChildren(...lines);
}
