// Calls of the server: the user's actions, and changes of the view. The token comes in the address's
// fragment, which no browser sends, and is kept for this tab, so that it survives a reload.

const KEPT = "fala token";
const token = new URLSearchParams(location.hash.slice(1)).get("token");
if (token) {
  sessionStorage.setItem(KEPT, token);
  history.replaceState(null, "", location.pathname);
}
// If the address of a later start is opened in the same tab, only the fragment changes.
addEventListener("hashchange", () => location.reload());

const headers = () => ({ Authorization: `Bearer ${sessionStorage.getItem(KEPT) ?? ""}` });

async function answer(response) {
  const content = await response.json();
  if (!response.ok) {
    throw Object.assign(new Error(content.error), { status: response.status });
  }
  return content;
}

/**
 * Run an action, and return its answer with the version of the view that shows it. If the server
 * rejects the action, the Error has a status; if the server does not answer, the Error has none.
 */
export async function act(name, body = {}) {
  const response = await fetch(`api/${name}`, {
    method: "POST",
    headers: { ...headers(), "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
  return answer(response);
}

export const pause = (seconds) => new Promise((done) => setTimeout(done, 1000 * seconds));

/** Report every change while the page is open: a new view, or the error if there is none. */
export async function follow(changed, absent) {
  for (let after = ""; ;) {
    try {
      const response = await fetch(`api/state?after=${after}`, { headers: headers() });
      const view = await answer(response);
      after = view.version;
      changed(view);
    } catch (error) {
      after = "";
      absent(error);
      await pause(1);
    }
  }
}
