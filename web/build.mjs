// Builds the two pages with esbuild, into the Python packages that hold them. The result is committed, so that nobody
// who only uses shardplan needs node. `--check` builds nothing and fails where what is committed is not what is built.

import { createHash } from "node:crypto";
import { readdir, readFile, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const HERE = new URL(".", import.meta.url);
const PAGES = {
  report: "../planner/export/report/page/report",
  service: "../api/web/service",
};
const INPUTS = ["report", "service", "build.mjs", "package-lock.json"];
const LIBRARIES = ["@dagrejs/dagre", "@dagrejs/graphlib"];

/** SHA-256 over the name and the text of every source, in the order of their names. */
async function digest() {
  const sum = createHash("sha256");
  for (const path of await files()) sum.update(`${path}\n`).update(await readFile(new URL(path, HERE)));
  return sum.digest("hex");
}

async function files() {
  const inside = async (name) => {
    if (name.includes(".")) return [name];
    return (await readdir(new URL(name, HERE))).map((part) => `${name}/${part}`);
  };
  return (await Promise.all(INPUTS.map(inside))).flat().sort();
}

/** What stands first in a built script: where it is from, and the licences of the libraries in it. */
async function banner() {
  const licences = LIBRARIES.map(async (name) => {
    const folder = new URL(`node_modules/${name}/`, HERE);
    const { version } = JSON.parse(await readFile(new URL("package.json", folder), "utf8"));
    return `${name} ${version}\n\n${(await readFile(new URL("LICENSE", folder), "utf8")).trim()}`;
  });
  const words = [
    `Built by "make pages" from web/, sources ${await digest()}. It holds:`,
    ...(await Promise.all(licences)),
  ];
  return `/*!\n${words.join("\n\n")}\n*/`;
}

/** [path, text] of everything that is built. */
async function built() {
  const settings = { bundle: true, minify: true, write: false, charset: "utf8", target: "es2022", outdir: "out" };
  const js = { js: await banner() };
  const all = Object.entries(PAGES).map(async ([name, target]) => {
    const entryPoints = [`${name}/main.js`, `${name}/main.css`].map((path) => fileURLToPath(new URL(path, HERE)));
    const { outputFiles } = await build({ ...settings, format: "esm", legalComments: "none", banner: js, entryPoints });
    return outputFiles.map((file) => [new URL(target + file.path.match(/\.\w+$/)[0], HERE), file.text]);
  });
  return (await Promise.all(all)).flat();
}

const isCheck = process.argv.includes("--check");
for (const [path, text] of await built()) {
  if (!isCheck) await writeFile(path, text);
  else if ((await readFile(path, "utf8").catch(() => "")) !== text) {
    console.error(`${fileURLToPath(path)} is not what its sources give: run "make pages" and commit it`);
    process.exitCode = 1;
  }
}
