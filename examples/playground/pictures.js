"use strict";
// Pictures of what the server has computed: nothing here knows an algorithm.

const SERIES = 4, TRAIL = 30;

// The colours of the page's theme, by name.
function colours() {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(`--${name}`).trim();
  const series = Array.from({ length: SERIES }, (_, i) => of(`series-${i}`));
  return { paper: of("paper"), ink: of("ink"), grey: of("grey"), pale: of("pale"), series };
}

// A canvas as a window of a plane: `x` and `y` return pixels.
class Picture {
  constructor(canvas, [left, right, low, high], margins = [26, 26]) {
    const box = canvas.getBoundingClientRect(), ratio = window.devicePixelRatio || 1;
    canvas.width = Math.round(box.width * ratio);
    canvas.height = Math.round(box.height * ratio);
    this.context = canvas.getContext("2d");
    this.context.scale(ratio, ratio);
    [this.width, this.height, this.margin, this.foot] = [box.width, box.height, ...margins];
    [this.left, this.right, this.low, this.high] = [left, right, low, high];
    this.theme = colours();
  }
  x(value) { return this.margin + ((value - this.left) / (this.right - this.left)) * (this.width - this.margin); }
  y(value) { return (1 - (value - this.low) / (this.high - this.low)) * (this.height - this.foot); }

  line(points, colour, width, dash = []) {
    const c = this.context;
    c.beginPath();
    let started = false;
    for (const [x, y] of points) {
      if (x === null || y === null) { started = false; continue; }
      started ? c.lineTo(this.x(x), this.y(y)) : c.moveTo(this.x(x), this.y(y));
      started = true;
    }
    c.setLineDash(dash);
    [c.strokeStyle, c.lineWidth] = [colour, width];
    c.stroke();
    c.setLineDash([]);
  }
  dot([x, y], radius, colour, edge = null) {
    if (x === null || y === null) return;
    const c = this.context;
    c.beginPath();
    c.arc(this.x(x), this.y(y), radius, 0, 2 * Math.PI);
    c.fillStyle = colour;
    c.fill();
    if (edge) { [c.strokeStyle, c.lineWidth] = [edge, 1.5]; c.stroke(); }
  }
  square([x, y], half, colour, edge) {
    const c = this.context, box = [this.x(x) - half, this.y(y) - half, 2 * half, 2 * half];
    c.fillStyle = colour;
    c.fillRect(...box);
    [c.strokeStyle, c.lineWidth] = [edge, 1.5];
    c.strokeRect(...box);
  }
  // Axes with round numbers; drawn last, over what leaves the window.
  axes(across = ticks(this.left, this.right)) {
    const c = this.context, bottom = this.height - this.foot;
    c.fillStyle = this.theme.paper;
    c.fillRect(0, 0, this.margin, this.height);
    c.fillRect(0, bottom, this.width, this.foot);
    [c.fillStyle, c.font] = [this.theme.grey, "12px system-ui, sans-serif"];
    for (const value of across) {
      c.textAlign = "center";
      c.fillText(shown(value), Math.min(Math.max(this.x(value), this.margin), this.width - 12), this.height - 8);
    }
    for (const value of ticks(this.low, this.high)) {
      c.textAlign = "right";
      c.fillText(shown(value), this.margin - 4, Math.min(Math.max(this.y(value) + 4, 12), bottom));
    }
  }
}

function ticks(low, high) {
  const rough = (high - low) / 4, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough);
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high; value += step) found.push(value);
  return found;
}

function shown(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const rounded = Math.abs(value) < 1e-9 ? 0 : value;
  return Number(rounded.toPrecision(3)).toString().replace("-", "−");
}

// Contours, all draws as dots, the last steps as lines, and beliefs as ellipses at one and two deviations.
function drawPlane(canvas, window, contours, points, covariances) {
  const picture = new Picture(canvas, window), { context: c, theme } = picture;
  c.fillStyle = theme.ink;
  for (const region of contours) {
    c.beginPath();
    for (const line of region) line.forEach(([x, y], i) => (i ? c.lineTo : c.moveTo).call(c, picture.x(x), picture.y(y)));
    c.globalAlpha = 0.07;
    c.fill("evenodd");
  }
  c.globalAlpha = 1;
  const count = points.length ? points[0].length : 0;
  const samples = covariances === null, trail = samples ? points.slice(-TRAIL) : points;
  if (samples) {
    c.globalAlpha = 0.4;
    for (const step of points) step.forEach((point, k) => picture.dot(point, 1.8, theme.series[k % SERIES]));
    c.globalAlpha = 1;
  }
  const colour = (k) => theme.series[k % SERIES], now = points.at(-1);
  for (let k = 0; k < count; k++) picture.line(trail.map((step) => step[k]), colour(k), 1.3);
  for (let k = 0; k < count; k++) {
    for (const [radius, dash] of samples ? [] : [[1, []], [2, [6, 4]]]) {
      picture.line(ellipse(now[k], covariances[k], radius), colour(k), 2, dash);
    }
    picture.dot(now[k], 5, colour(k), theme.paper);
  }
  picture.axes();
}

// m + r L (cos t, sin t), with L the Cholesky factor of the covariance; nothing for a point.
function ellipse([x, y], [[xx, xy], [, yy]], radius) {
  if (!(xx > 0)) return [];
  const a = Math.sqrt(xx), b = xy / a, c = Math.sqrt(Math.max(yy - b * b, 0));
  return Array.from({ length: 65 }, (_, i) => {
    const angle = (2 * Math.PI * i) / 64, [s, t] = [radius * Math.cos(angle), radius * Math.sin(angle)];
    return [x + a * s, y + b * s + c * t];
  });
}

// Rows, with the lines of some draws, or with the probability of the second class behind them.
function drawData(canvas, window, rows, seen) {
  const picture = new Picture(canvas, window), { context: c, theme } = picture;
  const [left, right] = window;
  if (seen.map) drawMap(picture, seen.map);
  c.globalAlpha = 0.5;
  for (const [start, end] of seen.lines || []) picture.line([[left, start], [right, end]], theme.series[0], 1);
  c.globalAlpha = 1;
  rows.x.forEach((x, i) => {
    if (x.length === 1) picture.dot([x[0], rows.y[i]], 3, theme.ink);
    else if (rows.y[i]) picture.dot(x, 4, theme.series[0], theme.paper);
    else picture.square(x, 3.5, theme.series[1], theme.paper);
  });
  picture.axes();
}

function drawMap(picture, map) {
  const { context: c, theme } = picture, size = map.length;
  const small = new OffscreenCanvas(size, size), cells = small.getContext("2d");
  const image = cells.createImageData(size, size), ends = [theme.series[1], theme.series[0], theme.paper].map(channels);
  map.forEach((row, j) => row.forEach((p, i) => {
    const end = p > 0.5 ? ends[1] : ends[0], share = Math.abs(p - 0.5) * 1.3, at = 4 * ((size - 1 - j) * size + i);
    for (let k = 0; k < 3; k++) image.data[at + k] = share * end[k] + (1 - share) * ends[2][k];
    image.data[at + 3] = 255;
  }));
  cells.putImageData(image, 0, 0);
  c.imageSmoothingEnabled = true;
  c.drawImage(small, picture.margin, 0, picture.width - picture.margin, picture.height - picture.foot);
}

function channels(hex) { return [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)); }

function drawLoss(canvas, losses) {
  const finite = losses.filter((value) => value !== null);
  const [low, high] = finite.length ? [Math.min(...finite), Math.max(...finite)] : [0, 1];
  const room = Math.max(0.05 * (high - low), 1e-3);
  const picture = new Picture(canvas, [0, Math.max(losses.length - 1, 1), low - room, high + room], [44, 4]);
  picture.line(losses.map((value, i) => [i, value]), picture.theme.series[0], 1.3);
  picture.axes([]);
}
