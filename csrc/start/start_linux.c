// Go's runtime ends a program that gets no memory or thread for itself with a page of its
// own state and the exit code of a wrong flag, partly before any Go code runs. Where limits
// of this process are set low, a constructor tries what the runtime will need, and says in
// one line which limit it is.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum { INTERNAL = 70, MOST_CORES = 16, FEW_THREADS = 4096 };

static void refuse(const char *limit, const char *has, const char *needs) {
  char line[512];
  int n = snprintf(line, sizeof line, "monotron: %s is too low: it leaves %s, but %s. Raise the limit, or remove it (%s unlimited)\n", limit, has, needs, limit);
  if (n > 0 && write(2, line, (size_t)n) < 0) _exit(INTERNAL);
  _exit(INTERNAL);
}

static long cores(void) {
  long n = sysconf(_SC_NPROCESSORS_ONLN);
  return n < 1 ? 1 : n > MOST_CORES ? MOST_CORES : n;
}

// Address space is reserved long before it is memory: by the runtime, and for every
// thread's stack and heap.
static void try_space(void) {
  struct rlimit l;
  if (getrlimit(RLIMIT_AS, &l) != 0 || l.rlim_cur == RLIM_INFINITY) return;
  size_t need = ((size_t)2 << 30) + ((size_t)256 << 20) * (size_t)cores();
  void *p = mmap(NULL, need, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p != MAP_FAILED) {
    munmap(p, need);
    return;
  }
  char needs[160];
  snprintf(needs, sizeof needs, "the program reserves %zu MiB at the start and never uses most of them (to limit memory, use a control group)", need >> 20);
  refuse("ulimit -v", "too little address space", needs);
}

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

static void *wait_at_gate(void *unused) {
  pthread_mutex_lock(&gate);
  pthread_mutex_unlock(&gate);
  return unused;
}

// Processes and threads of the same user count together, so only a trial shows it.
static void try_threads(void) {
  struct rlimit l;
  if (getrlimit(RLIMIT_NPROC, &l) != 0 || l.rlim_cur > FEW_THREADS) return;
  pthread_t made[MOST_CORES + 8];
  int want = (int)cores() + 7, n = 0, failed = 0;
  pthread_mutex_lock(&gate);
  while (n < want && (failed = pthread_create(&made[n], NULL, wait_at_gate, NULL)) == 0) n++;
  pthread_mutex_unlock(&gate);
  for (int i = 0; i < n; i++) pthread_join(made[i], NULL);
  if (failed == 0) return;
  char has[64], needs[64];
  snprintf(has, sizeof has, "only %d more threads for this user", n);
  snprintf(needs, sizeof needs, "at least %d are needed", want);
  refuse("ulimit -u", has, needs);
}

__attribute__((constructor)) static void try_limits(void) {
  try_space();
  try_threads();
}
