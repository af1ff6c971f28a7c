// A libcudnn.so.9 for tests on machines without GPUs: it keeps descriptors as they are
// set, refuses what cuDNN's documentation forbids, and runs a graph operation by operation
// on the CPU. It knows nothing of attention. Of two engines that it names the first says
// that it does not repeat bit for bit.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace {

enum { HANDLE, DATA_TYPE, BOOLEAN, INT64, FLOAT, VOID_PTR = 6, HEUR_MODE = 8, NOTE = 11, POINTWISE_MODE = 14, DESCRIPTOR = 15, OPERATOR = 18 };
enum { POINTWISE = 0, ENGINE = 2, CONFIG, HEURISTICS, PLAN, OP_POINTWISE = 13, GRAPH = 15, PACK, TENSOR, MATMUL, OP_MATMUL, REDUCTION = 21, OP_REDUCTION, OP_RESHAPE = 31 };
enum { F32 = 0, F16 = 2, I32 = 4, BF16 = 9, BOOL = 11 };

std::mutex mutex;
std::string last, sins;
int runs;
void (*enqueue_by)(void *stream, void (*work)(void *), void *data);

int no(const char *format, long long a = 0, long long b = 0) {
  char text[200];
  snprintf(text, sizeof text, format, a, b);
  last = text;
  return 2000;
}

void sin(const std::string &text) { sins += text + "\n"; }

struct Descriptor {
  int kind;
  bool final = false;
  std::map<int, std::vector<char>> set;
  int engine = 0; // of ENGINE, CONFIG and PLAN
  template <typename T> std::vector<T> all(int attribute) const {
    auto it = set.find(attribute);
    if (it == set.end()) return {};
    std::vector<T> out(it->second.size() / sizeof(T));
    memcpy(out.data(), it->second.data(), it->second.size());
    return out;
  }
  template <typename T> T one(int attribute, T otherwise = T()) const {
    auto v = all<T>(attribute);
    return v.empty() ? otherwise : v[0];
  }
  Descriptor *to(int attribute) const { return one<Descriptor *>(attribute, nullptr); }
};

std::set<Descriptor *> alive;

struct Rule { int kind, attribute, type, most; bool needed; };
const Rule rules[] = {
    {TENSOR, 900, INT64, 1, true}, {TENSOR, 901, DATA_TYPE, 1, true}, {TENSOR, 902, INT64, 8, true}, {TENSOR, 903, INT64, 8, true}, {TENSOR, 906, INT64, 1, true},
    {TENSOR, 907, BOOLEAN, 1, false}, {TENSOR, 908, BOOLEAN, 1, false},
    {POINTWISE, 0, POINTWISE_MODE, 1, true}, {POINTWISE, 1, DATA_TYPE, 1, true}, {POINTWISE, 9, INT64, 1, false},
    {OP_POINTWISE, 750, DESCRIPTOR, 1, true}, {OP_POINTWISE, 751, DESCRIPTOR, 1, true}, {OP_POINTWISE, 752, DESCRIPTOR, 1, false}, {OP_POINTWISE, 753, DESCRIPTOR, 1, true},
    {OP_POINTWISE, 758, DESCRIPTOR, 1, false},
    {MATMUL, 1500, DATA_TYPE, 1, true}, {OP_MATMUL, 1520, DESCRIPTOR, 1, true}, {OP_MATMUL, 1521, DESCRIPTOR, 1, true}, {OP_MATMUL, 1522, DESCRIPTOR, 1, true},
    {OP_MATMUL, 1523, DESCRIPTOR, 1, true},
    {REDUCTION, 1600, OPERATOR, 1, true}, {REDUCTION, 1601, DATA_TYPE, 1, true}, {REDUCTION, 1602, BOOLEAN, 1, false},
    {OP_REDUCTION, 1610, DESCRIPTOR, 1, true}, {OP_REDUCTION, 1611, DESCRIPTOR, 1, true}, {OP_REDUCTION, 1612, DESCRIPTOR, 1, true},
    {OP_RESHAPE, 2200, DESCRIPTOR, 1, true}, {OP_RESHAPE, 2201, DESCRIPTOR, 1, true},
    {GRAPH, 800, HANDLE, 1, false}, {GRAPH, 801, DESCRIPTOR, 100, true},
    {HEURISTICS, 200, HEUR_MODE, 1, true}, {HEURISTICS, 201, DESCRIPTOR, 1, true},
    {PLAN, 400, HANDLE, 1, true}, {PLAN, 401, DESCRIPTOR, 1, true},
    {PACK, 1000, INT64, 100, true}, {PACK, 1001, VOID_PTR, 100, true}, {PACK, 1003, VOID_PTR, 1, true},
};
const int width[] = {8, 4, 1, 8, 4, 8, 8, 4, 4, 4, 4, 4, 4, 4, 4, 8, 4, 4, 4};

struct Handle { void *stream; };
std::set<Handle *> handles;

// What a tensor's descriptor says.
struct Shape {
  std::vector<int64_t> dims, strides;
  int64_t uid;
  int type;
  bool is_virtual, by_value;
  explicit Shape(const Descriptor *d)
      : dims(d->all<int64_t>(902)), strides(d->all<int64_t>(903)), uid(d->one<int64_t>(906)), type(d->one<int32_t>(901)), is_virtual(d->one<char>(907)), by_value(d->one<char>(908)) {}
  int64_t count() const {
    int64_t n = 1;
    for (int64_t d : dims) n *= d;
    return n;
  }
};

int64_t at(const std::vector<int64_t> &dims, int64_t i, int d) {
  for (int k = 3; k > d; k--) i /= dims[k];
  return i % dims[d];
}
int64_t offset(const Shape &s, int64_t i) {
  int64_t sum = 0;
  for (int d = 0; d < 4; d++) sum += at(s.dims, i, d) * s.strides[d];
  return sum;
}

float rounded_bf16(float x) {
  uint32_t b;
  memcpy(&b, &x, 4);
  if (x == x) b = (b + 0x7fff + (b >> 16 & 1)) & 0xffff0000u;
  memcpy(&x, &b, 4);
  return x;
}
float stored(float x, int type) { return type == BF16 ? rounded_bf16(x) : type == F16 ? (float)(_Float16)x : x; }
float read(const void *p, int64_t i, int type) {
  if (type == F32) return static_cast<const float *>(p)[i];
  if (type == F16) return (float)static_cast<const _Float16 *>(p)[i];
  uint32_t b = (uint32_t) static_cast<const uint16_t *>(p)[i] << 16;
  float x;
  memcpy(&x, &b, 4);
  return x;
}
void write(void *p, int64_t i, int type, float x) {
  if (type == F32) {
    static_cast<float *>(p)[i] = x;
  } else if (type == F16) {
    static_cast<_Float16 *>(p)[i] = (_Float16)x;
  } else {
    uint32_t b;
    x = rounded_bf16(x);
    memcpy(&b, &x, 4);
    static_cast<uint16_t *>(p)[i] = (uint16_t)(b >> 16);
  }
}

// Operations with all that is needed to run them, free of descriptors: a run may be under way when those are gone.
struct Step {
  int kind, mode, axis;
  std::vector<Shape> in;
  Shape out;
};

struct Run {
  std::vector<Step> steps;
  std::map<int64_t, void *> memory;
  std::map<int64_t, float> numbers;
  char *workspace;
  int64_t workspace_bytes;
  std::map<int64_t, std::vector<float>> values;
  float fault = 1;

  const std::vector<float> &of(const Shape &s) {
    auto it = values.find(s.uid);
    if (it != values.end()) return it->second;
    std::vector<float> v(s.count());
    if (s.by_value) v[0] = numbers.at(s.uid);
    else
      for (int64_t i = 0; i < s.count(); i++) v[i] = read(memory.at(s.uid), offset(s, i), s.type);
    return values[s.uid] = v;
  }

  // The element of s that element i of `out` meets: dimensions of 1 stand for all, fewer heads for several.
  static int64_t meets(const Shape &s, const Shape &out, int64_t i) {
    int64_t j = 0;
    for (int d = 0; d < 4; d++) j = j * s.dims[d] + at(out.dims, i, d) / (out.dims[d] / s.dims[d]);
    return j;
  }

  std::vector<float> pointwise(const Step &s) {
    std::vector<float> y(s.out.count());
    const std::vector<float> &x = of(s.in[0]), *b = s.in.size() > 1 ? &of(s.in[1]) : nullptr, *t = s.in.size() > 2 ? &of(s.in[2]) : nullptr;
    for (int64_t i = 0; i < s.out.count(); i++) {
      float u = x[meets(s.in[0], s.out, i)], v = b ? (*b)[meets(s.in[1], s.out, i)] : 0;
      switch (s.mode) {
      case 0: y[i] = u + v; break;
      case 1: y[i] = u * v; break;
      case 6: y[i] = u / v; break;
      case 9: y[i] = u - v; break;
      case 13: y[i] = expf(u); break;
      case 15: y[i] = logf(u); break;
      case 303: y[i] = u >= v; break;
      case 501: y[i] = (float)at(s.out.dims, i, s.axis); break;
      case 601: y[i] = (*t)[meets(s.in[2], s.out, i)] != 0 ? u : v; break;
      }
    }
    return y;
  }

  std::vector<float> product(const Step &s) {
    const Shape &a = s.in[0], &b = s.in[1];
    const std::vector<float> &x = of(a), &y = of(b);
    std::vector<float> c(s.out.count());
    int64_t m = a.dims[2], k = a.dims[3], n = b.dims[3], share = a.dims[1] / b.dims[1];
    for (int64_t h = 0; h < a.dims[0] * a.dims[1]; h++) {
      const float *p = &x[h * m * k], *q = &y[(h / a.dims[1] * b.dims[1] + h % a.dims[1] / share) * k * n];
      for (int64_t i = 0; i < m; i++)
        for (int64_t l = 0; l < k; l++)
          for (int64_t j = 0; j < n; j++) c[(h * m + i) * n + j] += p[i * k + l] * q[l * n + j];
    }
    return c;
  }

  std::vector<float> reduce(const Step &s) {
    const std::vector<float> &x = of(s.in[0]);
    std::vector<float> y(s.out.count(), s.mode == 3 ? -std::numeric_limits<float>::infinity() : 0);
    for (int64_t i = 0; i < s.in[0].count(); i++) {
      float &sum = y[meets(s.out, s.in[0], i)];
      sum = s.mode == 3 ? fmaxf(sum, x[i]) : sum + x[i];
    }
    return y;
  }

  std::vector<float> turn(const Step &s) {
    const std::vector<float> &x = of(s.in[0]);
    std::vector<float> y(x.size());
    int64_t rows = s.out.dims[2], columns = s.out.dims[3];
    for (size_t i = 0; i < y.size(); i++) {
      int64_t matrix = i / (rows * columns), r = i / columns % rows, c = i % columns;
      y[i] = x[matrix * rows * columns + c * rows + r];
    }
    return y;
  }

  void work() {
    values.clear();
    memset(workspace, 0xff, workspace_bytes); // what a plan leaves there is nobody's business
    for (const Step &s : steps) {
      std::vector<float> y = s.kind == OP_POINTWISE ? pointwise(s) : s.kind == OP_MATMUL ? product(s) : s.kind == OP_REDUCTION ? reduce(s) : turn(s);
      for (float &v : y) v = stored(s.out.is_virtual ? v : v * fault, s.out.type);
      if (!s.out.is_virtual)
        for (int64_t i = 0; i < s.out.count(); i++) write(memory.at(s.out.uid), offset(s.out, i), s.out.type, y[i]);
      values[s.out.uid] = y;
    }
  }
};

bool divides(const Shape &small, const Shape &large) {
  for (int d = 0; d < 4; d++)
    if (large.dims[d] % small.dims[d]) return false;
  return true;
}

int check_tensor(const Descriptor *d) {
  Shape s(d);
  if (s.dims.size() != 4 || s.strides.size() != 4) return no("a tensor of %lld dimensions and %lld strides", s.dims.size(), s.strides.size());
  for (int k = 0; k < 4; k++)
    if (s.dims[k] < 1 || s.strides[k] < 1) return no("a tensor with dimension or stride %lld, %lld", s.dims[k], s.strides[k]);
  if (d->one<int64_t>(900) != 16) return no("alignment %lld", d->one<int64_t>(900));
  if (s.by_value && s.count() != 1) return no("%lld elements by value", s.count());
  return 0;
}

// The step that an operation stands for; refuses shapes that do not fit.
int step_of(const Descriptor *op, std::vector<Step> *out) {
  auto shape = [&](int attribute) { return Shape(op->to(attribute)); };
  if (op->kind == OP_POINTWISE) {
    const Descriptor *how = op->to(750);
    Step s = {op->kind, how->one<int32_t>(0), (int)how->one<int64_t>(9, -1), {shape(751)}, shape(753)};
    int wants = s.mode == 601 ? 3 : s.mode == 13 || s.mode == 15 || s.mode == 501 ? 1 : 2;
    if (op->to(752)) s.in.push_back(shape(752));
    if (op->to(758)) s.in.push_back(shape(758));
    if ((int)s.in.size() != wants || !std::set<int>{0, 1, 6, 9, 13, 15, 303, 501, 601}.count(s.mode)) return no("pointwise mode %lld with %lld operands", s.mode, s.in.size());
    if (s.mode == 501 && (s.axis < 0 || s.axis > 3 || s.out.type != I32)) return no("indices along axis %lld of type %lld", s.axis, s.out.type);
    if ((s.mode == 303) != (s.out.type == BOOL)) return no("pointwise mode %lld makes type %lld", s.mode, s.out.type);
    for (const Shape &x : s.in)
      if (!divides(x, s.out)) return no("pointwise mode %lld: operands do not fit", s.mode);
    out->push_back(s);
  } else if (op->kind == OP_MATMUL) {
    Step s = {op->kind, 0, 0, {shape(1520), shape(1521)}, shape(1522)};
    const auto &a = s.in[0].dims, &b = s.in[1].dims, &c = s.out.dims;
    if (a[0] != b[0] || a[1] % b[1] || a[3] != b[2] || c != std::vector<int64_t>{a[0], a[1], a[2], b[3]}) return no("a product of %lld by %lld: sizes do not fit", a[3], b[2]);
    out->push_back(s);
  } else if (op->kind == OP_REDUCTION) {
    Step s = {op->kind, op->to(1612)->one<int32_t>(1600), 0, {shape(1610)}, shape(1611)};
    if ((s.mode != 0 && s.mode != 3) || !divides(s.out, s.in[0])) return no("reduction %lld: sizes do not fit", s.mode);
    out->push_back(s);
  } else {
    Step s = {op->kind, 0, 0, {shape(2200)}, shape(2201)};
    auto turned = [](std::vector<int64_t> v) { std::swap(v[2], v[3]); return v; };
    if (turned(s.in[0].dims) != s.out.dims || turned(s.in[0].strides) != s.out.strides) return no("a reshape that is no transposition");
    out->push_back(s);
  }
  return 0;
}

int steps_of(const Descriptor *graph, std::vector<Step> *out) {
  std::set<int64_t> made;
  std::map<int64_t, Shape> known;
  for (Descriptor *op : graph->all<Descriptor *>(801)) {
    if (!alive.count(op) || !op->final) return no("an operation that is not finalized");
    if (int e = step_of(op, out)) return e;
    const Step &s = out->back();
    for (const Shape &x : s.in)
      if (x.is_virtual && !made.count(x.uid)) return no("virtual tensor %lld is read before it is made", x.uid);
    if (!made.insert(s.out.uid).second || s.out.by_value) return no("tensor %lld is made twice", s.out.uid);
    std::vector<Shape> seen = s.in;
    seen.push_back(s.out);
    for (const Shape &x : seen) {
      auto it = known.emplace(x.uid, x).first;
      if (it->second.dims != x.dims || it->second.type != x.type) return no("number %lld stands for two tensors", x.uid);
    }
  }
  return 0;
}

std::vector<std::unique_ptr<Run>> kept;

const Descriptor *graph_of(const Descriptor *plan) { return plan->to(401)->to(-1); }

int64_t workspace_of(const Descriptor *plan) {
  std::vector<Step> steps;
  steps_of(graph_of(plan), &steps);
  return 1000 + 8 * (int64_t)steps.size(); // odd on purpose
}

int check_finalized(Descriptor *d) {
  for (const Rule &r : rules)
    if (r.kind == d->kind && r.needed && !d->set.count(r.attribute)) return no("kind %lld lacks attribute %lld", d->kind, r.attribute);
  for (const auto &[attribute, bytes] : d->set)
    if (d->kind != GRAPH)
      for (const Rule &r : rules)
        if (r.kind == d->kind && r.attribute == attribute && r.type == DESCRIPTOR && (!alive.count(d->to(attribute)) || !d->to(attribute)->final))
          return no("attribute %lld is not finalized", attribute);
  std::vector<Step> steps;
  switch (d->kind) {
  case TENSOR: return check_tensor(d);
  case OP_POINTWISE: case OP_MATMUL: case OP_REDUCTION: case OP_RESHAPE: return step_of(d, &steps);
  case GRAPH: return steps_of(d, &steps);
  case PACK: return d->all<int64_t>(1000).size() == d->all<void *>(1001).size() ? 0 : no("numbers and pointers differ in count");
  }
  return 0;
}

template <typename T> void put(Descriptor *d, int attribute, const T &v) { d->set[attribute].assign((const char *)&v, (const char *)&v + sizeof v); }

} // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT void standin_enqueue_by(void (*f)(void *, void (*)(void *), void *)) { enqueue_by = f; }
EXPORT const char *standin_sins() { return sins.c_str(); }
EXPORT int standin_runs() { return runs; }
EXPORT int standin_alive() { return (int)(alive.size() + handles.size()); }

EXPORT size_t cudnnGetVersion() { return 92800; }
EXPORT void cudnnGetLastErrorString(char *text, size_t room) { snprintf(text, room, "%s", last.c_str()); }

EXPORT int cudnnCreate(void **out) {
  std::lock_guard<std::mutex> lock(mutex);
  Handle *h = new Handle{nullptr};
  handles.insert(h);
  *out = h;
  return 0;
}
EXPORT int cudnnDestroy(void *h) {
  std::lock_guard<std::mutex> lock(mutex);
  if (!handles.erase(static_cast<Handle *>(h))) sin("a handle is destroyed that is none");
  else delete static_cast<Handle *>(h);
  return 0;
}
EXPORT int cudnnSetStream(void *h, void *stream) {
  static_cast<Handle *>(h)->stream = stream;
  return 0;
}

EXPORT int cudnnBackendCreateDescriptor(int kind, void **out) {
  std::lock_guard<std::mutex> lock(mutex);
  Descriptor *d = new Descriptor;
  d->kind = kind;
  alive.insert(d);
  *out = d;
  return 0;
}
EXPORT int cudnnBackendDestroyDescriptor(void *p) {
  std::lock_guard<std::mutex> lock(mutex);
  if (!alive.erase(static_cast<Descriptor *>(p))) sin("a descriptor is destroyed twice");
  else delete static_cast<Descriptor *>(p);
  return 0;
}

EXPORT int cudnnBackendSetAttribute(void *p, int attribute, int type, int64_t count, const void *values) {
  std::lock_guard<std::mutex> lock(mutex);
  Descriptor *d = static_cast<Descriptor *>(p);
  if (!alive.count(d) || d->final) return no("attribute %lld is set on what is finalized or gone", attribute);
  for (const Rule &r : rules) {
    if (r.kind != d->kind || r.attribute != attribute) continue;
    if (r.type != type || count < 1 || count > r.most || !values) return no("attribute %lld is set with type %lld", attribute, type);
    d->set[attribute].assign((const char *)values, (const char *)values + count * width[type]);
    return 0;
  }
  return no("kind %lld has no attribute %lld", d->kind, attribute);
}

EXPORT int cudnnBackendFinalize(void *p) {
  std::lock_guard<std::mutex> lock(mutex);
  Descriptor *d = static_cast<Descriptor *>(p);
  if (!alive.count(d) || d->final) return no("finalized twice");
  if (d->kind == PLAN && d->to(401)) d->engine = d->to(401)->engine;
  if (int e = check_finalized(d)) return e;
  d->final = true;
  return 0;
}

EXPORT int cudnnBackendGetAttribute(void *p, int attribute, int type, int64_t room, int64_t *count, void *values) {
  std::lock_guard<std::mutex> lock(mutex);
  Descriptor *d = static_cast<Descriptor *>(p);
  if (!alive.count(d) || !d->final) return no("attribute %lld is asked of what is not finalized", attribute);
  if (d->kind == HEURISTICS && attribute == 202 && type == DESCRIPTOR) {
    *count = 2;
    for (int i = 0; values && i < 2 && i < room; i++) {
      Descriptor *config = static_cast<Descriptor **>(values)[i];
      if (!alive.count(config) || config->kind != CONFIG) return no("results go into what is no engine configuration");
      config->engine = i, config->final = true;
      put(config, -1, d->to(201));
    }
    return 0;
  }
  if (d->kind == CONFIG && attribute == 300 && type == DESCRIPTOR && room >= 1) {
    Descriptor *engine = *static_cast<Descriptor **>(values);
    if (!alive.count(engine) || engine->kind != ENGINE) return no("the engine goes into what is none");
    engine->engine = d->engine, engine->final = true, *count = 1;
    return 0;
  }
  if (d->kind == ENGINE && attribute == 1303 && type == NOTE && room >= 2) {
    int32_t notes[] = {0, 4}; // tensor cores; not deterministic
    *count = d->engine == 0 ? 2 : 1;
    memcpy(values, notes, *count * 4);
    return 0;
  }
  if (d->kind == PLAN && attribute == 402 && type == INT64 && room >= 1) {
    int64_t bytes = workspace_of(d);
    memcpy(values, &bytes, 8);
    *count = 1;
    return 0;
  }
  return no("kind %lld is asked for attribute %lld", d->kind, attribute);
}

EXPORT int cudnnBackendExecute(void *h, void *p, void *q) {
  std::lock_guard<std::mutex> lock(mutex);
  Descriptor *plan = static_cast<Descriptor *>(p), *pack = static_cast<Descriptor *>(q);
  if (!handles.count(static_cast<Handle *>(h)) || !alive.count(plan) || !plan->final || !alive.count(pack) || !pack->final) return no("run with what is not finalized");
  if (plan->engine != 1) sin("an engine is run that does not repeat bit for bit");
  Run *r = new Run;
  if (int e = steps_of(graph_of(plan), &r->steps)) return e;
  auto uids = pack->all<int64_t>(1000);
  auto pointers = pack->all<void *>(1001);
  std::map<int64_t, void *> given;
  for (size_t i = 0; i < uids.size(); i++) given[uids[i]] = pointers[i];
  for (const Step &s : r->steps) {
    std::vector<Shape> seen = s.in;
    seen.push_back(s.out);
    for (const Shape &x : seen) {
      if (x.is_virtual) continue;
      void *at = given.count(x.uid) ? given[x.uid] : nullptr;
      if (!at || (!x.by_value && (uintptr_t)at % 16)) {
        delete r;
        return no("tensor %lld is not there, or not aligned", x.uid);
      }
      if (x.by_value) memcpy(&r->numbers[x.uid], at, 4);
      else r->memory[x.uid] = at;
    }
  }
  r->workspace = pack->one<char *>(1003), r->workspace_bytes = workspace_of(plan);
  runs++;
  if (const char *fault = getenv("STANDIN_FAULT")) {
    if (!strcmp(fault, "refused")) {
      delete r;
      return no("a run that is to fail");
    }
    r->fault = !strcmp(fault, "wrong") ? 1.05f : 1 + 1e-3f * runs;
  }
  kept.emplace_back(r); // a captured stream runs it again and again
  enqueue_by(static_cast<Handle *>(h)->stream, [](void *run) { static_cast<Run *>(run)->work(); }, r);
  return 0;
}
