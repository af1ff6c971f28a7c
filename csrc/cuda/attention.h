/* What the attention kernels share: where heads lie, which keys a query sees. */
#ifndef MT_ATTENTION_H
#define MT_ATTENTION_H

#include "op.h"
#include "philox.h"

enum { MOST_CHANNELS = 256 }; /* of a head */
const float LOG2E = 1.4426950408889634f, LN2 = 0.6931471805599453f;

/* One head of one sample in tensors [rows·batch, groups, heads a group, d]. */
struct place {
  int batch, sample, group, head; /* head: within its group */
};

/* Unsigned: a product of 64 bits with what is not negative is shorter; a tensor has fewer than 2^32 rows. */
template <typename T> __device__ inline T *row_at_place(const mt_tensor &t, const place &p, int64_t row) {
  uint32_t at = (uint32_t)row * (uint32_t)p.batch + (uint32_t)p.sample;
  return data_of<T>(t) + at * t.stride[0] + (uint32_t)p.group * t.stride[1] + (uint32_t)p.head * t.stride[2];
}

__host__ __device__ inline int queries(const mt_attention_forward_args &a) { return (int)(a.q.shape[0] / a.batch); }
__host__ __device__ inline int keys(const mt_attention_forward_args &a) { return (int)(a.k.shape[0] / a.batch); }
__host__ __device__ inline int heads_of(const mt_attention_forward_args &a) { return (int)(a.q.shape[1] * a.q.shape[2]); }

/* The coordinates of head `head` among all of this call's. */
__device__ inline place place_of(const mt_attention_forward_args &a, int sample, int head) {
  int a_group = (int)a.q.shape[2];
  return {a.batch, sample, head / a_group, head % a_group};
}
/* The same head's coordinates in k and v, where a group has one. */
__device__ inline place shared_place(place p) {
  p.head = 0;
  return p;
}

/* Keys before the first query's own. */
__host__ __device__ inline int ahead(const mt_attention_forward_args &a) { return a.q_offset - a.k_offset; }
/* One behind the last key that a query up to `to` sees. */
__host__ __device__ inline int keys_until(const mt_attention_forward_args &a, int to) {
  int end = ahead(a) + to;
  return end < keys(a) ? end : keys(a);
}

/* What query i sees: the keys from..last; its position is that of its own key. */
struct sight {
  int from, last, position;
  __device__ bool sees(int key) const { return key >= from && key <= last; }
  __device__ bool sees_all(int first, int end) const { return first >= from && end - 1 <= last; } /* keys first..end-1 */
};

/* The first key of query i's document, counted in the complete sequence. */
__device__ inline const int32_t *document_of(const mt_attention_forward_args &a, int sample, int i) {
  return data_of<int32_t>(a.doc_start) + sample * a.doc_start.stride[0] + i;
}

/* document() is what stands there, asked where documents are given. Of a query that is not
 * there: nothing. */
template <typename F> __device__ inline sight sight_from(const mt_attention_forward_args &a, int i, F document) {
  int sq = queries(a);
  if (i >= sq) return {1 << 30, -1, -1};
  int place = ahead(a) + i, most = keys(a) - 1;
  sight s = {0, place < most ? place : most, place};
  if (given(a.doc_start)) s.from = document() - a.k_offset;
  if (a.window >= 0 && place - a.window > s.from) s.from = place - a.window;
  if (a.chunk > 0) {
    int first = (a.q_offset + i) / a.chunk * a.chunk - a.k_offset;
    if (first > s.from) s.from = first;
  }
  if (s.from < 0) s.from = 0;
  if (s.from > s.last) s.from = 1 << 30; /* nothing */
  return s;
}
__device__ inline sight sight_of(const mt_attention_forward_args &a, int sample, int i) {
  return sight_from(a, i, [&] { return *document_of(a, sample, i); });
}

/* What is added to a score: slope·(key − position). */
__device__ inline float slope_of(const mt_attention_forward_args &a, int head) { return given(a.slopes) ? data_of<float>(a.slopes)[head] : 0; }

__device__ inline int64_t stat_at(const mt_attention_forward_args &a, int sample, int head, int i) {
  return ((int64_t)sample * heads_of(a) + head) * queries(a) + i;
}

/* Queries that can see one of the keys from..to: first, and one behind the last. */
struct span { int from, to; };
__device__ inline span looking(const mt_attention_forward_args &a, int from, int to) {
  int sq = queries(a), first = from - ahead(a), end = sq;
  if (a.window >= 0 && to + a.window - ahead(a) + 1 < end) end = to + a.window - ahead(a) + 1;
  return {first < 0 ? 0 : first, end};
}


/* f32: plain multiply-adds. bf16 and f16: tensor cores. */
void mt_attention_forward_f32(cudaStream_t stream, const mt_attention_forward_args &a);
void mt_attention_backward_f32(cudaStream_t stream, const mt_attention_backward_args &a, const float *delta);
void mt_attention_forward_half(cudaStream_t stream, int processors, const mt_attention_forward_args &a);
void mt_attention_backward_half(cudaStream_t stream, const mt_attention_backward_args &a, const float *delta);

#endif
