// Settings, the questions to the server, and the numbers beside the pictures.

const find = (id) => document.getElementById(id);
const KEPT = 3000, LOSSES = 400;
const SPEEDS = { slow: [1, 250], medium: [1, 40], fast: [10, 40], fastest: [100, 0] };

let targets = {}, running = false, generation = 0;
let run = emptyRun();

function emptyRun() { return { number: null, points: [], covariances: null, losses: [], seen: {}, contours: [] }; }

async function ask(question, content = {}) {
  const options = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(content) };
  let answer;
  try {
    answer = await fetch(question, options);
  } catch {
    throw new Error("The server does not answer; start it again with python -m examples.playground.");
  }
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.error);
  return found;
}

const target = () => targets[find("target").value];
const algorithm = () => target().algorithms[find("algorithm").value];
const stepSize = () => 10 ** Number(find("step-size").value);
const temperature = () => 10 ** Number(find("temperature").value);
const settings = () => ({ step_size: stepSize(), temperature: temperature() });

// Every change of what is run makes answers to older questions void.
async function restart() {
  const mine = ++generation, rows = find("rows").value;
  run = emptyRun();
  find("fault").textContent = "";
  const place = { target: find("target").value, algorithm: find("algorithm").value };
  const about = { ...place, ...settings(), rows: rows === "" ? null : Number(rows) };
  const [{ contours }, { run: number }] = await Promise.all([ask("/plane", about), ask("/start", about)]);
  if (mine !== generation) return;
  Object.assign(run, { contours, number });
  show();
}

async function advance(steps) {
  const mine = generation;
  if (run.number === null || run.seen.fault) return;
  const seen = await ask("/advance", { run: run.number, steps, ...settings() });
  if (mine !== generation) return;
  run.seen = seen;
  run.losses = [...run.losses, ...seen.loss].slice(-LOSSES);
  if (seen.points) {
    run.points = [...run.points, ...seen.points].slice(-KEPT);
    run.covariances = seen.covariances ? seen.covariances.at(-1) : null;
  }
  if (seen.fault) { find("fault").textContent = seen.fault; pause(); }
  show();
}

// Of a belief, or of the later half of the draws.
function moments() {
  if (run.covariances && run.covariances.length > 1) return {};
  const pair = (values) => `(${values.map((value) => value.toFixed(2).replace("-", "−")).join(", ")})`;
  if (run.covariances) {
    const deviation = [0, 1].map((i) => Math.sqrt(run.covariances[0][i][i]));
    const about = deviation[0] > 0 ? { Deviation: pair(deviation) } : {};
    return { Mean: pair(run.points.at(-1)[0]), ...about };
  }
  const draws = run.points.slice(Math.floor(run.points.length / 2)).flat();
  if (!draws.length) return {};
  const mean = [0, 1].map((i) => average(draws.map((point) => point[i])));
  const deviation = [0, 1].map((i) => Math.sqrt(average(draws.map((point) => (point[i] - mean[i]) ** 2))));
  return { Mean: pair(mean), Deviation: pair(deviation) };
}

const average = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

function fill(list, entries) {
  list.replaceChildren(...Object.entries(entries).flatMap(([name, value]) => {
    const [term, text] = [document.createElement("dt"), document.createElement("dd")];
    [term.textContent, text.textContent] = [name, value];
    return [term, text];
  }));
}

function show() {
  const about = target(), numbers = { Steps: String(run.seen.steps ?? 0) };
  if (run.seen.acceptance !== undefined) numbers.Acceptance = `${Math.round(100 * run.seen.acceptance)} %`;
  numbers.Loss = shown(run.losses.at(-1));
  Object.assign(numbers, moments());
  fill(find("numbers"), numbers);
  const summary = Object.entries(numbers).map((pair) => pair.join(" ")).join("; ");
  if (about.window) {
    drawPlane(find("plane"), about.window, run.contours, run.points, run.covariances);
    find("plane").ariaLabel = `${algorithm().title} on ${about.title}. ${summary}`;
  }
  if (about.inputs) {
    drawData(find("data"), about.inputs, about.rows, run.seen);
    find("data").ariaLabel = `The rows of ${about.title}, and what is predicted. ${summary}`;
  }
  drawLoss(find("loss"), run.losses);
  find("loss").ariaLabel = `Loss over steps, now ${numbers.Loss} nats a row`;
  if (!running) find("status").textContent = summary;
}

// What depends on the target: the algorithms, and the figures.
function chooseTarget(keep) {
  const about = target(), list = find("algorithm"), groups = new Map();
  for (const [name, { title, group }] of Object.entries(about.algorithms)) {
    if (!groups.has(group)) groups.set(group, Object.assign(document.createElement("optgroup"), { label: group }));
    groups.get(group).append(new Option(title, name));
  }
  list.replaceChildren(...groups.values());
  list.value = keep in about.algorithms ? keep : Object.keys(about.algorithms)[0];
  find("plane-figure").hidden = !about.window;
  find("data-figure").hidden = !about.inputs;
  find("rows-label").hidden = !about.rows;
  document.querySelector(".pictures").classList.toggle("two", Boolean(about.window && about.inputs));
  const [across, up] = about.axes;
  find("plane-caption").textContent =
    `${about.about} Across: ${across}; up: ${up}. Shades: within ⅛, ½, 2, 4.5 and 8 nats of the top.`;
  find("data-caption").textContent = about.window ? "The rows, and the lines of 24 draws." : about.about;
}

function chooseAlgorithm() {
  find("step-size").value = Math.log10(algorithm().step_size);
  find("choices-title").textContent = algorithm().title;
  const named = { family: "Belief", expectation: "Expectation", curvature: "Curvature", geometry: "Geometry", departures: "Departures" };
  fill(find("choices"), Object.fromEntries(Object.entries(algorithm().choices).map(([key, value]) => [named[key], value])));
}

function keepAddress() {
  find("step-size-shown").textContent = shown(stepSize());
  find("temperature-shown").textContent = shown(temperature());
  const kept = new URLSearchParams({ target: find("target").value, algorithm: find("algorithm").value });
  for (const [name, value] of Object.entries(settings())) kept.set(name, Number(value.toPrecision(3)));
  if (find("rows").value) kept.set("rows", find("rows").value);
  history.replaceState(null, "", `#${kept}`);
}

function fail(error) { pause(); find("fault").textContent = error.message; }
function pause() { running = false; find("run").textContent = "Start"; show(); }

async function start() {
  running = true;
  find("run").textContent = "Pause";
  while (running) {
    const [steps, wait] = SPEEDS[find("speed").value], begun = performance.now();
    await advance(steps);
    await new Promise((resolve) => setTimeout(resolve, Math.max(wait - (performance.now() - begun), 0)));
    await new Promise(requestAnimationFrame);
  }
}

const toggle = () => (running ? pause() : start().catch(fail));
const stepOnce = () => { pause(); advance(1).catch(fail); };
const again = () => { keepAddress(); restart().catch(fail); };

function listen() {
  find("run").addEventListener("click", toggle);
  find("step").addEventListener("click", stepOnce);
  find("restart").addEventListener("click", again);
  find("controls").addEventListener("submit", (event) => event.preventDefault());
  find("target").addEventListener("change", () => { chooseTarget(find("algorithm").value); chooseAlgorithm(); again(); });
  find("algorithm").addEventListener("change", () => { chooseAlgorithm(); again(); });
  find("rows").addEventListener("change", again);
  find("step-size").addEventListener("input", keepAddress);
  find("temperature").addEventListener("input", keepAddress);
  find("temperature").addEventListener("change", async () => {
    const mine = generation, place = { target: find("target").value, ...settings() };
    try {
      const { contours } = await ask("/plane", place);
      if (mine === generation) { run.contours = contours; show(); }
    } catch (error) { fail(error); }
  });
  find("plane").addEventListener("keydown", (event) => {
    const action = { " ": toggle, ArrowRight: stepOnce, Home: again }[event.key];
    if (action) { event.preventDefault(); action(); }
  });
  window.addEventListener("resize", show);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
}

async function open() {
  ({ targets } = await ask("/catalogue"));
  const given = new URLSearchParams(location.hash.slice(1));
  find("target").replaceChildren(...Object.entries(targets).map(([name, { title }]) => new Option(title, name)));
  find("target").value = given.get("target") in targets ? given.get("target") : "banana";
  chooseTarget(given.get("algorithm") ?? "hmc");
  chooseAlgorithm();
  for (const name of ["step-size", "temperature"]) {
    const value = Number(given.get(name.replace("-", "_")));
    if (value > 0) find(name).value = Math.log10(value);
  }
  if (given.get("rows")) find("rows").value = given.get("rows");
  listen();
  keepAddress();
  await restart();
  const steps = Math.min(Number(given.get("steps")) || 0, 500);
  if (steps > 0) await advance(Math.floor(steps));
  document.body.dataset.ready = "yes";
}

open().catch(fail);
