// The lives of recipes/numpy_alone.py in Pyodide, under node: node run.mjs WHEEL FOLDER
import { mkdirSync, readFileSync } from "node:fs";
import { loadPyodide } from "pyodide";

const [wheel, folder] = process.argv.slice(2);
const pyodide = await loadPyodide();
// SQLite is part of the newer Pyodide, and a package of the older.
await pyodide.loadPackagesFromImports("import numpy, sqlite3");
await pyodide.loadPackage(wheel);
mkdirSync(folder, { recursive: true });
pyodide.FS.mkdir("/app");
pyodide.mountNodeFS("/app", folder);
pyodide.FS.writeFile("/alone.py", readFileSync(new URL("numpy_alone.py", import.meta.url)));
try {
  pyodide.runPython("import runpy, sys; sys.argv[1:] = ['/app']; runpy.run_path('/alone.py', run_name='__main__')");
} catch (error) {
  console.error(error.message); // not the whole of Pyodide's source, as node prints it
  process.exitCode = 1;
}
