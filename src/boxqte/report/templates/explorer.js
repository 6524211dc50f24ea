(() => {
  'use strict';
  const data = JSON.parse(document.getElementById('explorer-data').textContent);
  const LESS_F32 = 1, AT_MOST_F32 = 2, AT_MOST_F64 = 3, IN_SET = 4;
  const AS_ZERO = 1, WITH_ZERO = 2, ZERO_EXACT = 3;
  const values = data.value.map(BigInt), base = BigInt(data.base), first = data.first.map(BigInt);
  const sets = new Map(Object.entries(data.sets).map(([node, codes]) => [Number(node), new Set(codes)]));
  const known = new Map(Object.entries(data.known).map(([feature, codes]) => [Number(feature), new Set(codes)]));
  const attributes = data.attributes;
  const numeric = a => a.kind === 'integer' || a.kind === 'real';

  // --- the model ---

  function holds(node, x) { // whether a present value goes left
    const t = data.threshold[node];
    switch (data.test[node]) {
      case LESS_F32: return Math.fround(x) < t;
      case AT_MOST_F32: return Math.fround(x) <= t;
      case AT_MOST_F64: return x <= t;
      default: return sets.get(node).has(code(x));
    }
  }

  function code(x) { return Number.isFinite(x) && Math.abs(x) < 2 ** 62 ? Math.trunc(x) + 0 : -1; }

  function goesLeft(node, x) {
    const missing = data.missing[node];
    let absent = Number.isNaN(x);
    if (missing === AS_ZERO && absent) { x = 0; absent = false; }
    else if (missing === WITH_ZERO) absent = absent || Math.abs(x) <= data.zero;
    else if (missing === ZERO_EXACT) absent = absent || x === 0;
    if (data.test[node] === IN_SET) {
      const codes = known.get(data.feature[node]);
      if (codes && !codes.has(code(x))) absent = true;
    }
    return absent ? data.default[node] === 1 : holds(node, x);
  }

  function leaf(root, row, seen) {
    let node = root;
    while (data.test[node] !== 0) {
      const left = goesLeft(node, row[data.feature[node]]);
      if (seen) seen(node, left);
      node = left ? data.left[node] : data.right[node];
    }
    return node;
  }

  const leaves = row => data.roots.map(root => leaf(root, row));

  function judged(row, group) { // the class, and the sum of the leaf values
    let sum = base;
    for (const root of data.roots) sum += values[leaf(root, row)];
    return { sum, top: sum >= first[group] ? 1 : 0 };
  }

  // --- inputs: a number, the index of a value, or null for a missing one, for each attribute ---

  function rowOf(input) {
    const row = new Array(data.columns).fill(NaN);
    attributes.forEach((a, i) => write(row, a, input[i]));
    return row;
  }

  function write(row, a, value) {
    a.columns.forEach((f, c) => {
      row[f] = value === null ? NaN : numeric(a) ? value : a.codes[value][c] === null ? NaN : a.codes[value][c];
    });
  }

  function groupOf(input) {
    const i = attributes.findIndex(a => a.groups);
    if (i < 0) return 0;
    const a = attributes[i], value = input[i];
    if (value === null) return a.groups[a.groups.length - 1];
    return a.groups[numeric(a) ? value - a.low : value];
  }

  function within(a, part, value) { // whether a value lies in a part of the attribute's domain
    if (value === null) return part.missing;
    if (!numeric(a)) return part.values.includes(value);
    if (a.kind === 'integer' || a.low === a.high) return part.spans.some(([low, high]) => low <= value && value < high);
    const inside = !part.lacks.includes(value) && part.spans.some(([low, high]) => low <= value && value <= high);
    return inside || part.points.includes(value);
  }

  const forbids = input => data.rules.find(rule => // a rule that says the input cannot be
    rule.boxes.some(box => box.every(([i, part]) => within(attributes[i], part, input[i]))));

  const decide = input => judged(rowOf(input), groupOf(input));
  const withValue = (input, i, value) => input.map((v, k) => k === i ? value : v);

  function scores({ sum }) {
    const margin = Number(sum) * data.unit - data.shift;
    if (data.link === 'sigmoid') return [['probability', 1 / (1 + Math.exp(-margin))], ['margin', margin]];
    if (data.link === 'mean') return [['probability', margin + 0.5]];
    return [['margin', margin]];
  }

  // --- along one attribute ---

  const thresholds = attributes.map(a => {
    const found = new Set();
    if (numeric(a)) {
      for (let node = 0; node < data.test.length; node++) {
        if (data.test[node] === 0 || data.feature[node] !== a.columns[0]) continue;
        if (data.test[node] === IN_SET) for (const c of sets.get(node)) { found.add(c); found.add(c + 1); }
        else found.add(data.threshold[node]);
        if (data.missing[node] >= WITH_ZERO) found.add(0);
      }
    }
    return [...found].filter(t => t >= a.low && t <= a.high).sort((x, y) => x - y);
  });

  function stretches(a, i) { // ranges of a numeric attribute in which no test changes: [from, to, a value inside]
    if (a.kind === 'integer') {
      if (a.high - a.low <= 400) return Array.from({ length: a.high - a.low + 1 }, (_, k) => [a.low + k, a.low + k, a.low + k]);
      const starts = [...new Set([a.low, ...thresholds[i].flatMap(t => [Math.floor(t), Math.floor(t) + 1, Math.ceil(t)])])]
        .filter(v => v >= a.low && v <= a.high).sort((x, y) => x - y);
      return starts.map((v, k) => [v, k + 1 < starts.length ? starts[k + 1] - 1 : a.high, v]);
    }
    const ends = [...new Set([a.low, ...thresholds[i], a.high])];
    if (ends.length === 1) return [[a.low, a.low, a.low]];
    return ends.slice(1).map((to, k) => [ends[k], to, ends[k] + (to - ends[k]) / 2]);
  }

  const cut = attributes.map((a, i) => numeric(a) ? stretches(a, i) : null);

  function strip(input, i) { // what each stretch, or value, of an attribute gives, all others as they are
    const a = attributes[i], group = groupOf(input), row = rowOf(input);
    const at = value => {
      write(row, a, value);
      return judged(row, a.groups ? groupOf(withValue(input, i, value)) : group);
    };
    if (!numeric(a)) return a.labels.map((label, v) => ({ label, value: v, ...at(v) }));
    const out = [];
    for (const [from, to, inside] of cut[i]) {
      const now = at(inside), last = out[out.length - 1];
      if (last && last.top === now.top) last.to = to;
      else out.push({ from, to, value: inside, ...now });
    }
    return out;
  }

  // --- the bounding region: no tree changes its leaf ---

  function region(input) {
    const row = rowOf(input);
    const ends = attributes.map(() => ({ low: -Infinity, high: Infinity, lowOpen: false, highOpen: false, tests: [] }));
    const owner = new Map();
    attributes.forEach((a, i) => a.columns.forEach((f, c) => owner.set(f, [i, c])));
    for (const root of data.roots) leaf(root, row, (node, left) => {
      const [i] = owner.get(data.feature[node]), a = attributes[i], e = ends[i];
      if (!numeric(a) || input[i] === null || data.test[node] === IN_SET) { e.tests.push([node, left]); return; }
      const t = data.threshold[node], less = data.test[node] === LESS_F32, x = input[i];
      if (data.missing[node] >= WITH_ZERO) {
        if (Math.abs(x) <= (data.missing[node] === WITH_ZERO ? data.zero : 0)) { above(e, x, false); below(e, x, false); return; }
        if (x > 0) above(e, 0, true); else below(e, 0, true);
      }
      if (left) below(e, t, less); else above(e, t, !less);
    });
    return ends.map((e, i) => same(attributes[i], e, input[i], owner));
  }

  function below(e, t, open) {
    if (t < e.high || (t === e.high && open)) { e.high = t; e.highOpen = open; }
  }

  function above(e, t, open) {
    if (t > e.low || (t === e.low && open)) { e.low = t; e.lowOpen = open; }
  }

  function same(a, e, value, owner) {
    const row = new Array(data.columns).fill(NaN);
    const agrees = v => {
      write(row, a, v);
      return e.tests.every(([node, left]) => goesLeft(node, row[data.feature[node]]) === left);
    };
    if (!numeric(a)) {
      const kept = a.labels.map((_, v) => v).filter(agrees);
      const absent = a.missing && agrees(null);
      return { values: kept, missing: absent, all: kept.length === a.labels.length && (absent || !a.missing) };
    }
    if (value === null) return { missing: true };
    let { low, high, lowOpen, highOpen } = e;
    if (a.kind === 'integer') {
      low = Math.max(a.low, lowOpen ? Math.floor(low) + 1 : Math.ceil(low));
      high = Math.min(a.high, highOpen ? Math.ceil(high) - 1 : Math.floor(high));
      if (e.tests.length) while (low < value && !agrees(low)) low++;
      if (e.tests.length) while (high > value && !agrees(high)) high--;
      lowOpen = highOpen = false;
    } else {
      if (low < a.low) { low = a.low; lowOpen = false; }
      if (high > a.high) { high = a.high; highOpen = false; }
    }
    return { low, high, lowOpen, highOpen, all: low === a.low && high === a.high && !lowOpen && !highOpen && !a.missing };
  }

  window.boxqteExplorer = Object.freeze({ leaves, judged, forbids, decide, rowOf, region, strip });

  // --- the page ---

  const byId = id => document.getElementById(id);
  const make = (tag, known = {}, ...inside) => {
    const e = document.createElement(tag);
    for (const [name, value] of Object.entries(known)) {
      if (name === 'class') e.className = value; else if (name in e && name !== 'list') e[name] = value; else e.setAttribute(name, value);
    }
    e.append(...inside);
    return e;
  };
  const short = v => String(Number(v.toPrecision(6)));
  const className = k => data.classes[k] === String(k) ? `class ${k}` : data.classes[k];
  const valueText = (a, v) => v === null ? 'missing' : numeric(a) ? short(v) : a.labels[v];

  let input = data.starts.length ? data.starts[0][0].slice()
    : attributes.map(a => !numeric(a) ? 0 : a.kind === 'integer' ? Math.floor((a.low + a.high) / 2) : (a.low + a.high) / 2);
  const rows = attributes.map(attributeRow);

  function attributeRow(a, i) {
    const id = `explorer-a${i}`, strip_ = make('div', { class: numeric(a) ? 'strip' : 'strip parts', role: 'img' });
    const label = make('label', { htmlFor: id }, a.name), controls = make('div', { class: 'controls' });
    const note = make('p', { class: 'note' }), out = { strip: strip_, note, a };
    if (numeric(a)) {
      out.number = make('input', { type: 'number', id, step: a.kind === 'integer' ? '1' : 'any', min: a.low, max: a.high });
      out.range = make('input', { type: 'range', min: a.low, max: a.high, step: a.kind === 'integer' ? 1 : 'any',
        'aria-label': `${a.name}, slider` });
      out.range.addEventListener('input', () => set(i, Number(out.range.value)));
      out.number.addEventListener('input', () => { if (out.number.value !== '') set(i, Number(out.number.value), out.number); });
      controls.append(out.number, out.range);
      if (a.missing) {
        out.absent = make('input', { type: 'checkbox', id: `${id}-missing` });
        out.absent.addEventListener('change', () => set(i, out.absent.checked ? null : Number(out.range.value)));
        controls.append(make('span', {}, out.absent, ' ', make('label', { htmlFor: `${id}-missing` }, 'missing')));
      }
      strip_.addEventListener('click', event => {
        const box = strip_.getBoundingClientRect(), share = Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1);
        const width = a.kind === 'integer' ? a.high - a.low + 1 : a.high - a.low;
        set(i, a.kind === 'integer' ? Math.min(a.low + Math.floor(share * width), a.high) : a.low + share * width);
      });
    } else {
      out.select = make('select', { id }, ...a.labels.map((text, v) => make('option', { value: String(v) }, text)),
        ...(a.missing ? [make('option', { value: '' }, 'missing')] : []));
      out.select.addEventListener('change', () => set(i, out.select.value === '' ? null : Number(out.select.value)));
      controls.append(out.select);
      strip_.addEventListener('click', event => {
        const box = strip_.getBoundingClientRect(), n = a.labels.length;
        set(i, Math.min(Math.max(Math.floor((event.clientX - box.left) / box.width * n), 0), n - 1));
      });
    }
    byId('explorer-rows').append(make('div', { class: 'row' }, label, controls, make('div', { class: 'wide-part' }, strip_, note)));
    return out;
  }

  function set(i, value, typed) {
    const a = attributes[i];
    const wrong = value !== null && numeric(a) && (!(value >= a.low && value <= a.high) || (a.kind === 'integer' && !Number.isInteger(value)));
    if (rows[i].number) rows[i].number.setAttribute('aria-invalid', String(wrong));
    if (wrong) { rows[i].note.textContent = `outside the space: ${short(a.low)} to ${short(a.high)}${a.kind === 'integer' ? ', whole numbers' : ''}`; return; }
    input = withValue(input, i, value);
    show(typed);
  }

  function show(typed) {
    const now = decide(input), found = region(input);
    verdict(now);
    rows.forEach((row, i) => {
      const a = row.a, value = input[i];
      if (row.number) {
        if (row.number !== typed) row.number.value = value === null ? '' : String(value);
        row.number.setAttribute('aria-invalid', 'false');
        if (value !== null) row.range.value = String(value);
        row.number.disabled = row.range.disabled = value === null;
        if (row.absent) row.absent.checked = value === null;
      } else row.select.value = value === null ? '' : String(value);
      const parts = strip(input, i);
      draw(row, parts, value);
      const region_ = regionText(a, found[i]);
      row.note.textContent = `${flipText(a, parts)}; same leaves: ${region_}`;
    });
  }

  function verdict(now) {
    const place = byId('explorer-verdict');
    const numbers = scores(now).map(([name, v]) => `${name} ${short(v)}`).join(', ');
    const lines = [make('p', { class: 'lead' }, make('strong', {}, className(now.top)), `, ${numbers}`)];
    const rule = forbids(input);
    if (rule) lines.push(make('p', { class: 'violated' }, `A rule of the space forbids this input: ${rule.text}`));
    for (const i of data.sensitive) {
      const a = attributes[i], other = strip(input, i).filter(p => p.top !== now.top && !forbids(withValue(input, i, p.value)));
      lines.push(make('p', {}, other.length ? `Another ${a.name} turns the class.` : `No other ${a.name} turns the class.`));
    }
    place.replaceChildren(...lines);
    byId('explorer-sensitive').replaceChildren(...data.sensitive.map(i => sensitiveTable(i)));
  }

  function sensitiveTable(i) {
    const a = attributes[i], parts = strip(input, i), names = scores(parts[0]).map(([name]) => name);
    const head = make('tr', {}, ...[a.name, 'class', ...(numeric(a) ? [] : names)].map(text => make('th', { scope: 'col' }, text)));
    const body = parts.map(p => make('tr', { class: isIn(a, p, input[i]) ? 'changed' : '' },
      make('th', { scope: 'row' }, numeric(a) ? rangeText(a, p) : p.label), make('td', {}, className(p.top) +
        (!numeric(a) && forbids(withValue(input, i, p.value)) ? ', forbidden by a rule' : '')),
      ...(numeric(a) ? [] : scores(p).map(([, v]) => make('td', {}, short(v))))));
    const caption = make('caption', {}, `What each ${a.name} would give, all else as it is; the marked row is the input`);
    return make('div', { class: 'scroll', tabIndex: 0, role: 'region', 'aria-label': `by ${a.name}` },
      make('table', {}, caption, make('thead', {}, head), make('tbody', {}, ...body)));
  }

  const isIn = (a, p, value) => value !== null && (numeric(a) ? value >= p.from && value <= p.to : p.value === value);
  const rangeText = (a, p) => p.from === p.to ? short(p.from) : `${short(p.from)} to ${short(p.to)}`;

  function flipText(a, parts) {
    if (parts.every(p => p.top === parts[0].top)) return `always ${className(parts[0].top)}`;
    if (!numeric(a)) {
      const few = [0, 1].map(k => parts.filter(p => p.top === k)).sort((x, y) => x.length - y.length)[0];
      return `${className(few[0].top)} for ${few.map(p => p.label).join(', ')}`;
    }
    const flips = parts.slice(1).map(p => short(p.from)), shown = flips.slice(0, 8).join(', ');
    return `${className(parts[0].top)} first, turns at ${shown}${flips.length > 8 ? `, and ${flips.length - 8} more` : ''}`;
  }

  function regionText(a, r) {
    if (r.all) return 'every value';
    if (!numeric(a)) return [...r.values.map(v => a.labels[v]), ...(r.missing ? ['missing'] : [])].join(', ');
    if (r.missing) return 'missing';
    if (r.low === r.high) return short(r.low);
    if (a.kind === 'integer') return `${short(r.low)} to ${short(r.high)}`;
    return `${r.lowOpen ? 'above' : 'from'} ${short(r.low)} ${r.highOpen ? 'to below' : 'to'} ${short(r.high)}`;
  }

  function draw(row, parts, value) {
    const a = row.a, whole = a.kind === 'integer' ? 1 : 0;
    const pieces = parts.map(p => {
      const piece = make('i', { class: `c${p.top}` });
      if (numeric(a)) piece.style.flexGrow = String(Math.max(p.to - p.from + whole, 1e-9));
      else piece.title = `${p.label}: ${className(p.top)}`;
      return piece;
    });
    if (value !== null) {
      const width = a.high - a.low + whole || 1;
      const at = numeric(a) ? (value - a.low + whole / 2) / width : (value + 0.5) / a.labels.length;
      const mark = make('b');
      mark.style.left = `${Math.min(Math.max(at, 0), 1) * 100}%`;
      pieces.push(mark);
    }
    row.strip.replaceChildren(...pieces);
    row.strip.setAttribute('aria-label', `${a.name}: ${flipText(a, parts)}; here ${valueText(a, value)}`);
  }

  const start = byId('explorer-start');
  data.starts.forEach((pair, k) => {
    ["x", "x'"].forEach((side, s) => start.append(make('option', { value: `${k},${s}` }, `counterexample ${k + 1}, ${side}`)));
  });
  if (!data.starts.length) start.append(make('option', { value: '' }, 'the middle of the space'));
  start.addEventListener('change', () => {
    const [k, s] = start.value.split(',').map(Number);
    if (data.starts.length) { input = data.starts[k][s].slice(); show(); }
  });
  byId('explorer-class-0').textContent = className(0);
  byId('explorer-class-1').textContent = className(1);
  byId('explorer-body').hidden = false;
  show();
})();
