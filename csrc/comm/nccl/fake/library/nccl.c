/* A stand-in for libnccl.so.2 that the tests build: ranks are threads of one
 * process, device memory is the host's, a stream is a thread with a queue. It moves
 * the bytes truly, and lists misuse of NCCL: calls that ranks do not agree on,
 * unbalanced groups, messages outside a group, use of a
 * communicator after its end, a call while the one before is in progress, an end with
 * work under way. Every call returns "in progress", and a thread enqueues it a little
 * later. The end of a communicator takes a while, and waits for those of its other
 * ranks. */
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum { SUCCESS, CUDA_ERROR, SYSTEM_ERROR, INTERNAL_ERROR, INVALID_ARGUMENT, INVALID_USAGE, REMOTE_ERROR, IN_PROGRESS };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of everything here */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static char sins[4096], last_words[512];
static int live;

static void sin_of(const char *format, ...) {
  va_list a;
  va_start(a, format);
  size_t n = strlen(sins);
  vsnprintf(sins + n, sizeof sins - n, format, a);
  n = strlen(sins);
  snprintf(sins + n, sizeof sins - n, "\n");
  va_end(a);
}

/* ---- streams and marks, in place of CUDA's streams and events */

typedef struct mark { int reached; } mark;

typedef struct task {
  void (*run)(struct task *); /* the caller holds the lock */
  struct task *next;
  struct stream *on; /* of a call that is not taken yet */
  mark *mark;
  struct comm *comm;
  int op, root, dtype, red, n;
  size_t count;
  const void *in;
  const float *other;
  void *out;
  struct message *messages;
} task;

typedef struct stream {
  pthread_t thread;
  task *first, **last;
  int idle, ending;
} stream;

static void *work(void *arg) {
  stream *s = arg;
  pthread_mutex_lock(&lock);
  for (;;) {
    while (!s->first && !s->ending) {
      s->idle = 1;
      pthread_cond_broadcast(&changed);
      pthread_cond_wait(&changed, &lock);
    }
    if (!s->first) break;
    task *t = s->first;
    s->idle = 0;
    t->run(t);
    if (!(s->first = t->next)) s->last = &s->first;
    free(t);
  }
  pthread_mutex_unlock(&lock);
  return NULL;
}

EXPORT stream *standin_stream(void) {
  stream *s = calloc(1, sizeof *s);
  s->last = &s->first;
  pthread_create(&s->thread, NULL, work, s);
  return s;
}

EXPORT void standin_stream_free(stream *s) {
  pthread_mutex_lock(&lock);
  s->ending = 1;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
  pthread_join(s->thread, NULL);
  free(s);
}

static void enqueue(stream *s, task *t) {
  *s->last = t;
  s->last = &t->next;
  pthread_cond_broadcast(&changed);
}

static task *new_task(void (*run)(task *)) {
  task *t = calloc(1, sizeof *t);
  t->run = run;
  return t;
}

static void reach(task *t) {
  t->mark->reached = 1;
  pthread_cond_broadcast(&changed);
}

static void follow(task *t) {
  while (!t->mark->reached) pthread_cond_wait(&changed, &lock);
}

EXPORT mark *standin_mark(stream *s) {
  pthread_mutex_lock(&lock);
  task *t = new_task(reach);
  t->mark = calloc(1, sizeof(mark));
  enqueue(s, t);
  pthread_mutex_unlock(&lock);
  return t->mark;
}

EXPORT void standin_order(stream *s, mark *m) {
  pthread_mutex_lock(&lock);
  task *t = new_task(follow);
  t->mark = m;
  enqueue(s, t);
  pthread_mutex_unlock(&lock);
}

EXPORT int standin_reached(mark *m) {
  pthread_mutex_lock(&lock);
  int is = m->reached;
  pthread_mutex_unlock(&lock);
  return is;
}

EXPORT void standin_sync(stream *s) {
  pthread_mutex_lock(&lock);
  while (s->first || !s->idle) pthread_cond_wait(&changed, &lock);
  pthread_mutex_unlock(&lock);
}

/* gate is a mark that the host reaches: what is ordered behind it waits so long. */
EXPORT mark *standin_gate(void) { return calloc(1, sizeof(mark)); }

EXPORT void standin_pass(mark *m) {
  pthread_mutex_lock(&lock);
  m->reached = 1;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
}

static void write_floats(task *t) {
  for (size_t i = 0; i < t->count; i++) ((float *)t->out)[i] = (float)t->root;
}

EXPORT void standin_write(stream *s, float *out, size_t count, int value) {
  pthread_mutex_lock(&lock);
  task *t = new_task(write_floats);
  t->out = out, t->count = count, t->root = value;
  enqueue(s, t);
  pthread_mutex_unlock(&lock);
}

static void add_floats(task *t) {
  for (size_t i = 0; i < t->count; i++) ((float *)t->out)[i] = ((const float *)t->in)[i] + t->other[i];
}

EXPORT void standin_add(stream *s, float *out, const float *a, const float *b, size_t count) {
  pthread_mutex_lock(&lock);
  task *t = new_task(add_floats);
  t->out = out, t->in = a, t->other = b, t->count = count;
  enqueue(s, t);
  pthread_mutex_unlock(&lock);
}

EXPORT const char *standin_sins(void) { return sins; }
EXPORT int standin_live(void) { return live; }
EXPORT void standin_forget(void) { sins[0] = last_words[0] = 0; }

/* ---- communicators */

#define MOST_RANKS 16

typedef struct { char internal[128]; } unique;

typedef struct message {
  void *data;
  size_t bytes;
  int peer, send, taken;
  struct message *next;
} message;

typedef struct clique {
  unique id;
  int ranks, joined, failed, gone, left;
  task *called[MOST_RANKS]; /* of the collective under way */
  long round;
  message *posted[MOST_RANKS][MOST_RANKS]; /* [from][to], oldest first */
  struct clique *next;
} clique;

typedef struct comm {
  clique *clique;
  int rank, over, finalized, under_way;
  int untaken; /* calls in progress */
  int asked;   /* how often, about those */
} comm;

static clique *cliques;
static __thread int depth;
static __thread task *held[64]; /* calls of the group that is open */
static __thread int n_held;

static int usage(const char *format, ...) {
  va_list a;
  va_start(a, format);
  vsnprintf(last_words, sizeof last_words, format, a);
  va_end(a);
  sin_of("%s", last_words);
  return INVALID_USAGE;
}

EXPORT int ncclGetVersion(int *v) {
  const char *other = getenv("STANDIN_VERSION");
  *v = other ? atoi(other) : 22809;
  return SUCCESS;
}

EXPORT const char *ncclGetErrorString(int r) {
  static const char *names[] = {"no error", "unhandled cuda error", "unhandled system error", "internal error", "invalid argument", "invalid usage", "remote process exited or there was a network error", "in progress"};
  return names[r];
}

EXPORT const char *ncclGetLastError(comm *c) { return last_words; }

EXPORT int ncclGetUniqueId(unique *id) {
  static int made;
  memset(id, 0, sizeof *id);
  snprintf(id->internal, sizeof id->internal, "standin %d", __sync_add_and_fetch(&made, 1));
  return SUCCESS;
}

typedef struct {
  size_t size;
  uint32_t magic, version;
  int blocking;
} settings;

EXPORT int ncclCommInitRankConfig(comm **out, int ranks, unique id, int rank, const settings *config) {
  if (config->magic != 0xcafebeef || config->blocking != 0 || ranks > MOST_RANKS) return usage("a configuration that is none");
  pthread_mutex_lock(&lock);
  clique *q = cliques;
  while (q && memcmp(&q->id, &id, sizeof id)) q = q->next;
  if (!q) {
    q = calloc(1, sizeof *q);
    q->id = id, q->ranks = ranks, q->next = cliques;
    cliques = q;
  }
  if (q->ranks != ranks || rank < 0 || rank >= ranks) usage("rank %d of %d joins a communicator of %d", rank, ranks, q->ranks);
  comm *c = calloc(1, sizeof *c);
  c->clique = q, c->rank = rank;
  q->joined++;
  live++;
  *out = c;
  pthread_mutex_unlock(&lock);
  return IN_PROGRESS;
}

/* ---- calls in progress: a thread takes them, 20 microseconds after they came */

static task *coming, **last_coming = &coming;
static int polls_wanted; /* 0: the thread takes a call; else it is taken when asked for so often */

EXPORT void standin_slow(int polls) {
  pthread_mutex_lock(&lock);
  polls_wanted = polls;
  pthread_mutex_unlock(&lock);
}

static void take_first(void) {
  task *t = coming;
  if (!(coming = t->next)) last_coming = &coming;
  t->next = NULL;
  t->comm->untaken--;
  if (t->on && !t->comm->over) enqueue(t->on, t);
  else free(t);
}

static void *taker(void *unused) {
  prctl(PR_SET_TIMERSLACK, 1); /* else 20 microseconds are 70 */
  for (;;) {
    pthread_mutex_lock(&lock);
    while (!coming || polls_wanted) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    usleep(20);
    pthread_mutex_lock(&lock);
    while (coming && !polls_wanted) take_first();
    pthread_mutex_unlock(&lock);
  }
  return unused;
}

/* Begins a call, on a stream or none; the caller holds the lock. */
static int begin(comm *c, stream *on, task *t) {
  static int started;
  pthread_t thread;
  if (!started++) pthread_create(&thread, NULL, taker, NULL);
  t->comm = c, t->on = on;
  if (!c->untaken++) c->asked = 0;
  *last_coming = t;
  last_coming = &t->next;
  pthread_cond_broadcast(&changed);
  return c->clique->failed ? c->clique->failed : IN_PROGRESS;
}

EXPORT int ncclCommGetAsyncError(comm *c, int *result) {
  pthread_mutex_lock(&lock);
  if (polls_wanted && c->untaken && ++c->asked >= polls_wanted)
    while (c->untaken) take_first();
  if (c->clique->failed)
    *result = c->clique->failed;
  else if (c->clique->joined < c->clique->ranks || c->untaken)
    *result = IN_PROGRESS;
  else
    *result = SUCCESS;
  pthread_mutex_unlock(&lock);
  return SUCCESS;
}

/* NCCL's service threads end together: whoever leaves waits, here without end, for the
 * other ranks that have joined. */
static int leave(comm *c, const char *how) {
  clique *q = c->clique;
  pthread_mutex_lock(&lock);
  if (c->over) sin_of("rank %d: %s after the end", c->rank, how);
  if (!c->finalized) q->left++;
  c->over = c->finalized = 1;
  live--;
  pthread_cond_broadcast(&changed);
  while (q->left < q->joined) pthread_cond_wait(&changed, &lock);
  pthread_mutex_unlock(&lock);
  return SUCCESS;
}

EXPORT int ncclCommFinalize(comm *c) {
  pthread_mutex_lock(&lock);
  if (c->under_way) sin_of("rank %d: finalize with %d calls under way", c->rank, c->under_way);
  if (c->finalized) sin_of("rank %d: finalized twice", c->rank);
  c->finalized = 1;
  c->clique->left++;
  int result = begin(c, NULL, new_task(NULL));
  pthread_mutex_unlock(&lock);
  return result;
}

EXPORT int ncclCommDestroy(comm *c) {
  if (!c->finalized) sin_of("rank %d: destroy before finalize", c->rank);
  return leave(c, "destroy");
}

EXPORT int ncclCommAbort(comm *c) {
  pthread_mutex_lock(&lock);
  c->clique->gone = 1;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
  return leave(c, "abort");
}

/* fail ends a communicator for all its ranks. */
static void fail(clique *q, int result, const char *format, ...) {
  va_list a;
  va_start(a, format);
  vsnprintf(last_words, sizeof last_words, format, a);
  va_end(a);
  q->failed = result;
  pthread_cond_broadcast(&changed);
}

/* ---- groups */

EXPORT int ncclGroupStart(void) {
  depth++;
  return SUCCESS;
}

EXPORT int ncclGroupEnd(void);

static int post(comm *c, stream *s, task *t) {
  pthread_mutex_lock(&lock);
  if (c->over) usage("rank %d: a call after the end", c->rank);
  if (c->untaken) usage("rank %d: a call while the one before is in progress", c->rank);
  c->under_way++;
  int result = c->clique->failed;
  t->comm = c, t->on = s;
  if (depth)
    held[n_held++] = t;
  else
    result = begin(c, s, t);
  pthread_mutex_unlock(&lock);
  return result;
}

/* ---- collectives */

enum { ALL_REDUCE, REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER };
static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};

static float from_half(uint16_t h) { _Float16 f; memcpy(&f, &h, 2); return (float)f; }
static uint16_t to_half(float v) { _Float16 f = (_Float16)v; uint16_t h; memcpy(&h, &f, 2); return h; }
static float from_bf16(uint16_t h) { uint32_t u = (uint32_t)h << 16; float f; memcpy(&f, &u, 4); return f; }
static uint16_t to_bf16(float v) { uint32_t u; memcpy(&u, &v, 4); return (u + 0x7fff + (u >> 16 & 1)) >> 16; }

static double load(const void *p, size_t i, int dtype) {
  switch (dtype) {
    case 2: return ((const int32_t *)p)[i];
    case 4: return (double)((const int64_t *)p)[i];
    case 6: return from_half(((const uint16_t *)p)[i]);
    case 7: return ((const float *)p)[i];
    case 8: return ((const double *)p)[i];
    case 9: return from_bf16(((const uint16_t *)p)[i]);
  }
  return 0;
}

static void store(void *p, size_t i, int dtype, double v) {
  switch (dtype) {
    case 2: ((int32_t *)p)[i] = (int32_t)v; break;
    case 4: ((int64_t *)p)[i] = (int64_t)v; break;
    case 6: ((uint16_t *)p)[i] = to_half((float)v); break;
    case 7: ((float *)p)[i] = (float)v; break;
    case 8: ((double *)p)[i] = v; break;
    case 9: ((uint16_t *)p)[i] = to_bf16((float)v); break;
  }
}

/* combined reduces element i over all ranks. */
static double combined(clique *q, size_t i, int dtype, int red) {
  double v = load(q->called[0]->in, i, dtype);
  for (int r = 1; r < q->ranks; r++) {
    double o = load(q->called[r]->in, i, dtype);
    if (red == 0) v += o;
    else if (o > v || o != o) v = o;
  }
  return v;
}

static void carry(clique *q) {
  task *t = q->called[0];
  size_t n = t->count, size = sizes[t->dtype];
  int reduces = t->op == ALL_REDUCE || t->op == REDUCE || t->op == REDUCE_SCATTER;
  size_t total = t->op == REDUCE_SCATTER ? n * q->ranks : n;
  char *sum = malloc(total * size + 1);
  for (size_t i = 0; reduces && i < total; i++) store(sum, i, t->dtype, combined(q, i, t->dtype, t->red));
  if (t->op == BROADCAST) memcpy(sum, q->called[t->root]->in, n * size);
  char *all = t->op == ALL_GATHER ? malloc(n * size * q->ranks + 1) : NULL;
  for (int r = 0; all && r < q->ranks; r++) memcpy(all + r * n * size, q->called[r]->in, n * size);
  for (int r = 0; r < q->ranks; r++) {
    void *out = q->called[r]->out;
    if (t->op == ALL_REDUCE || t->op == BROADCAST || (t->op == REDUCE && r == t->root)) memcpy(out, sum, n * size);
    if (t->op == REDUCE_SCATTER) memcpy(out, sum + r * n * size, n * size);
    if (all) memcpy(out, all, n * size * q->ranks);
  }
  free(sum);
  free(all);
}

static void meet(task *t) {
  comm *c = t->comm;
  clique *q = c->clique;
  long round = q->round;
  q->called[c->rank] = t;
  int all = 1;
  for (int r = 0; r < q->ranks; r++) {
    task *o = q->called[r];
    if (!o) all = 0;
    else if (o->op != t->op || o->count != t->count || o->dtype != t->dtype || o->red != t->red || o->root != t->root)
      fail(q, INVALID_USAGE, "rank %d called %d of %zu, rank %d called %d of %zu", r, o->op, o->count, c->rank, t->op, t->count);
  }
  if (all && !q->failed) {
    carry(q);
    memset(q->called, 0, sizeof q->called);
    q->round++;
    pthread_cond_broadcast(&changed);
  }
  while (q->round == round && !q->failed && !q->gone) pthread_cond_wait(&changed, &lock);
  if (q->called[c->rank] == t) q->called[c->rank] = NULL;
  c->under_way--;
}

static int collective(int op, const void *in, void *out, size_t count, int dtype, int red, int root, comm *c, stream *s) {
  task *t = new_task(meet);
  t->op = op, t->in = in, t->out = out, t->count = count, t->dtype = dtype, t->red = red, t->root = root;
  return post(c, s, t);
}

EXPORT int ncclAllReduce(const void *in, void *out, size_t n, int dtype, int red, comm *c, stream *s) {
  return collective(ALL_REDUCE, in, out, n, dtype, red, -1, c, s);
}
EXPORT int ncclReduce(const void *in, void *out, size_t n, int dtype, int red, int root, comm *c, stream *s) {
  return collective(REDUCE, in, out, n, dtype, red, root, c, s);
}
EXPORT int ncclBroadcast(const void *in, void *out, size_t n, int dtype, int root, comm *c, stream *s) {
  return collective(BROADCAST, in, out, n, dtype, 0, root, c, s);
}
EXPORT int ncclAllGather(const void *in, void *out, size_t n, int dtype, comm *c, stream *s) {
  return collective(ALL_GATHER, in, out, n, dtype, 0, -1, c, s);
}
EXPORT int ncclReduceScatter(const void *in, void *out, size_t n, int dtype, int red, comm *c, stream *s) {
  return collective(REDUCE_SCATTER, in, out, n, dtype, red, -1, c, s);
}

/* ---- messages: a group's are one task; its sends are all posted before it waits */

static void exchange(task *t) {
  comm *c = t->comm;
  clique *q = c->clique;
  /* Every send is posted as a copy, so that the task does not wait for its receiver here. */
  for (message *m = t->messages; m; m = m->next)
    if (m->send) {
      message **at = &q->posted[c->rank][m->peer], *copy = malloc(sizeof *copy);
      *copy = *m, copy->next = NULL;
      while (*at) at = &(*at)->next;
      *at = copy;
    }
  pthread_cond_broadcast(&changed);
  /* Receives in their order, each for its own sender's next message. */
  for (message *m = t->messages; m; m = m->next) {
    if (m->send) continue;
    message **at = &q->posted[m->peer][c->rank];
    while (!*at && !q->failed && !q->gone) pthread_cond_wait(&changed, &lock);
    if (!*at) break;
    message *got = *at;
    if (got->bytes != m->bytes) {
      fail(q, INVALID_USAGE, "rank %d sends rank %d %zu bytes, %zu are expected", m->peer, c->rank, got->bytes, m->bytes);
      break;
    }
    memcpy(m->data, got->data, m->bytes);
    *at = got->next;
    free(got);
    pthread_cond_broadcast(&changed);
  }
  /* NCCL's sends end when they have been received. */
  for (int r = 0; r < q->ranks; r++)
    while (q->posted[c->rank][r] && !q->failed && !q->gone) pthread_cond_wait(&changed, &lock);
  while (t->messages) {
    message *m = t->messages;
    t->messages = m->next;
    free(m);
  }
  c->under_way--;
}

/* transfer adds a message to the group's task on its stream. */
static int transfer(void *data, size_t count, int dtype, int peer, comm *c, stream *s, int send) {
  if (!depth) return usage("rank %d: a message outside a group", c->rank);
  if (peer < 0 || peer >= c->clique->ranks) return usage("rank %d: a message to rank %d of %d", c->rank, peer, c->clique->ranks);
  task *t = NULL;
  for (int i = 0; i < n_held; i++)
    if (held[i]->on == s && held[i]->comm == c && held[i]->run == exchange) t = held[i];
  int result = SUCCESS;
  if (!t) result = post(c, s, t = new_task(exchange));
  message *m = calloc(1, sizeof *m), **at = &t->messages;
  *m = (message){data, count * sizes[dtype], peer, send, 0, NULL};
  while (*at) at = &(*at)->next;
  *at = m;
  return result;
}

EXPORT int ncclSend(const void *data, size_t n, int dtype, int peer, comm *c, stream *s) { return transfer((void *)data, n, dtype, peer, c, s, 1); }
EXPORT int ncclRecv(void *data, size_t n, int dtype, int peer, comm *c, stream *s) { return transfer(data, n, dtype, peer, c, s, 0); }

EXPORT int ncclGroupEnd(void) {
  if (!depth) return usage("a group is ended that was not begun");
  if (--depth) return SUCCESS;
  pthread_mutex_lock(&lock);
  int result = SUCCESS;
  for (int i = 0; i < n_held; i++) result = begin(held[i]->comm, held[i]->on, held[i]);
  n_held = 0;
  pthread_mutex_unlock(&lock);
  return result;
}
