/* The C side of package comm: one table of functions that an engine for bytes
 * between processes exports. Engines are shared libraries of their own, opened at
 * run time; no C++ exception leaves them, and errors are text in the caller's buffer. */
#ifndef MT_COMM_H
#define MT_COMM_H

#include <stdint.h>

#define MT_COMM_VERSION 2

enum { MT_COMM_SUM, MT_COMM_MAX };
enum { MT_COMM_F32, MT_COMM_F64, MT_COMM_F16, MT_COMM_I32, MT_COMM_I64 };

typedef struct mt_engine mt_engine; /* one a process: its threads and its network interface */
typedef struct mt_mesh mt_mesh;     /* ranks that are connected, each with each */

/* One message of a batch: to or from a rank of the mesh. Both ends name the same
 * slot and the same number of bytes. */
typedef struct {
  void *data;
  int64_t bytes;
  uint64_t slot;
  int32_t rank, send;
} mt_p2p;

typedef struct {
  char *text; /* what went wrong */
  int64_t room;
} mt_error;

/* All functions return 0, or -1 with a text in the error. Times are milliseconds. */
typedef struct {
  int32_t version, bytes;
  /* host is an address of this machine: the interface that peers reach. */
  int32_t (*open)(const char *host, mt_engine **engine, mt_error *error);
  void (*close)(mt_engine *engine);
  /* A mesh is made in two steps. The first gives an address for every other rank,
   * each address_bytes long, in rank order; the caller takes it there. */
  int32_t (*mesh_new)(mt_engine *engine, int32_t rank, int32_t size, int64_t timeout, mt_mesh **mesh, mt_error *error);
  int64_t address_bytes;
  int32_t (*mesh_addresses)(mt_mesh *mesh, char *addresses, mt_error *error);
  /* The second takes, for every other rank in order, its address for this one. */
  int32_t (*mesh_connect)(mt_mesh *mesh, const char *addresses, mt_error *error);
  /* batch makes n transfers as one and returns when all are done. */
  int32_t (*batch)(mt_mesh *mesh, const mt_p2p *ops, int32_t n, int64_t timeout, mt_error *error);
  /* all_reduce sums in the engine's own order. One at a time in a mesh. */
  int32_t (*all_reduce)(mt_mesh *mesh, void *data, int64_t count, int32_t dtype, int32_t op, int64_t timeout, mt_error *error);
  /* abort may be called from any thread: calls under way and to come fail. */
  void (*abort)(mt_mesh *mesh);
  void (*mesh_close)(mt_mesh *mesh);
} mt_comm_api;

typedef const mt_comm_api *(*mt_comm_api_get_fn)(void);

#endif
