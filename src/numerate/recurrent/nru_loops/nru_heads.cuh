// The heads of the NRU for ROWS rows of the batch that the threads of a block share: what the memory gains, and gradients.
// The mathematics is in nru_loop.cpp.
//
// A row z holds strengths (of heads that write, then that erase; so everywhere), p and q. The direction of a head is p q^T
// over its 5-norm or, rectified, p+ q+^T + p- q-^T: as many outer products of parts as there are SIGNS. Arrays of a row's
// numbers are laid out (number, row) in shared memory.
//
// Defined before: THREADS, ROWS, MEMORY, HEADS, RANK (r), SPAN (s), WIDTH (numbers of z), SIGNS, SCALE.

const int P = 2 * HEADS, Q = P + 2 * RANK;                        // parts of z after the strengths
const float EPS = 1e-12f, LIMIT = 50859007.85596004f;             // where the fifth powers in a norm overflow
const int NORMS = 2 * SIGNS * (1 + HEADS), FACTORS = 2 * SIGNS * SPAN;

#define EACH(count) for (int i = threadIdx.x; i < (count) * ROWS; i += THREADS)  // number i / ROWS of row i % ROWS

// What heads compute on the way, in `at`; backwards more of it.
struct HeadRoom {
  float *norms;    // 5-norms of all parts: of q (kind, sign), then of p (kind, head, sign)
  float *lengths;  // of directions (kind, head)
  float *factors;  // strength / length, with the sign and scale of a kind; 0 where the length is out of range
  float *w;        // what multiplies the parts of q, (kind, sign, SPAN)
  float *dw, *shares;  // gradient of w; of the norm of a part of q, (kind, head, sign), through each direction
  static const int FORWARD_SIZE = NORMS + 4 * HEADS + FACTORS, SIZE = FORWARD_SIZE + FACTORS + 2 * HEADS * SIGNS;

  INLINE HeadRoom(float *at) {
    norms = at, lengths = norms + NORMS * ROWS, factors = lengths + 2 * HEADS * ROWS, w = factors + 2 * HEADS * ROWS;
    dw = w + FACTORS * ROWS, shares = dw + FACTORS * ROWS;
  }
  INLINE float norm_q(int kind, int sign, int row) const { return norms[(kind * SIGNS + sign) * ROWS + row]; }
  INLINE float norm_p(int head, int sign, int row) const { return norms[((2 + head) * SIGNS + sign) * ROWS + row]; }
  INLINE float product(int head, int sign, int row) const { return norm_p(head, sign, row) * norm_q(head / HEADS, sign, row); }
};

INLINE float fifth(float x) {
  const float square = x * x;
  return square * square * fabsf(x);
}
INLINE float slope_of_norm(float x) { return x * x * x * fabsf(x); }  // of the 5-norm, at a unit vector

// The positive or negative part of a number, or all of it; and what its gradient is multiplied with.
INLINE float part(float x, int sign) { return SIGNS == 1 ? x : maximum(sign ? -x : x, 0.0f); }
INLINE float from_part(float gradient, float x, int sign) {
  return SIGNS == 1 ? gradient : sign ? (x < 0 ? -gradient : 0.0f) : (x > 0 ? gradient : 0.0f);
}

// A direction whose norm reaches LIMIT is 0, and so are its gradients.
INLINE bool fits(float norm) { return norm < LIMIT; }

// Norm of a direction; NaN where 0 meets infinity.
INLINE float joined(float large, float small) { return large * powf(1.0f + fifth(small / large), 0.2f); }
INLINE float length_of(const HeadRoom &room, int head, int row) {
  const float a = room.product(head, 0, row);
  if (SIGNS == 1) return a;
  const float b = room.product(head, SIGNS - 1, row);
  return a > b ? joined(a, b) : b > 0 ? joined(b, a) : a + b;
}
// How fast it grows with the norm of one of its parts.
INLINE float growth(const HeadRoom &room, int head, int sign, int row) {
  if (SIGNS == 1) return 1;
  const float length = room.lengths[head * ROWS + row];
  const float ratio = length > 0 ? room.product(head, sign, row) / length : 0.0f, square = ratio * ratio;
  return square * square;
}

// Norms of z, lengths, factors and w; an infinite q, of which no direction fits, becomes 0.
INLINE void weigh(float *z, const HeadRoom &room) {
  EACH(NORMS) {
    const int vector = i / ROWS / SIGNS, sign = i / ROWS % SIGNS, row = i % ROWS;
    const bool of_q = vector < 2;
    const int start = of_q ? Q + vector * RANK : P + (vector - 2) * SPAN, count = of_q ? RANK : SPAN;
    float sum = 0;
    for (int j = 0; j < count; j++) sum += fifth(part(z[(start + j) * ROWS + row], sign));
    room.norms[i] = powf(sum, 0.2f);
  }
  __syncthreads();
  EACH(2 * HEADS) {
    const int head = i / ROWS, row = i % ROWS;
    const float length = length_of(room, head, row), strength = part(z[i], 0);
    room.lengths[i] = length;
    room.factors[i] = fits(length) ? strength * (head < HEADS ? SCALE : -SCALE) / fmaxf(length, EPS) : 0.0f;
  }
  EACH(2 * RANK) {
    const int kind = i / ROWS / RANK, row = i % ROWS;
    UNROLL for (int sign = 0; sign < SIGNS; sign++)
      if (!fits(room.norm_q(kind, sign, row) * EPS)) z[Q * ROWS + i] = 0;  // 0 times an infinite q would not be 0
  }
  __syncthreads();
  EACH(FACTORS) {
    const int kind = i / ROWS / (SIGNS * SPAN), sign = i / ROWS / SPAN % SIGNS, a = i / ROWS % SPAN, row = i % ROWS;
    float sum = 0;
    UNROLL for (int head = 0; head < HEADS; head++) {
      const float factor = room.factors[(kind * HEADS + head) * ROWS + row];
      const float p = part(z[(P + kind * RANK + head * SPAN + a) * ROWS + row], sign);
      if (fits(room.lengths[(kind * HEADS + head) * ROWS + row])) sum += factor * p;
    }
    room.w[i] = sum;
  }
  __syncthreads();
}

// What number i / ROWS of the memory of row i % ROWS gains.
INLINE float gain(const float *z, const HeadRoom &room, int i) {
  const int a = i / ROWS / RANK, j = i / ROWS % RANK, row = i % ROWS;
  float sum = 0;
  UNROLL for (int kind = 0; kind < 2; kind++) {
    const float q = z[(Q + kind * RANK + j) * ROWS + row];
    UNROLL for (int sign = 0; sign < SIGNS; sign++)
      sum = fmaf(room.w[((kind * SIGNS + sign) * SPAN + a) * ROWS + row], part(q, sign), sum);
  }
  return sum;
}

// dz from z and the gradient of the memory.
INLINE void pull(float *z, const float *dm, float *dz, const HeadRoom &room) {
  weigh(z, room);
  EACH(FACTORS) {
    const int kind = i / ROWS / (SIGNS * SPAN), sign = i / ROWS / SPAN % SIGNS, a = i / ROWS % SPAN, row = i % ROWS;
    float sum = 0;
    for (int j = 0; j < RANK; j++)
      sum = fmaf(dm[(a * RANK + j) * ROWS + row], part(z[(Q + kind * RANK + j) * ROWS + row], sign), sum);
    room.dw[i] = sum;
  }
  __syncthreads();
  EACH(2 * HEADS) {
    const int head = i / ROWS, kind = head / HEADS, row = i % ROWS, p = P + head * SPAN;
    const float length = room.lengths[i], factor = room.factors[i];
    const bool real = fits(length);
    float along = 0;
    UNROLL for (int sign = 0; sign < SIGNS; sign++)
      UNROLL for (int a = 0; a < SPAN; a++)
        along = fmaf(room.dw[((kind * SIGNS + sign) * SPAN + a) * ROWS + row], part(z[(p + a) * ROWS + row], sign), along);
    along /= fmaxf(length, EPS);
    dz[i] = real ? from_part((kind ? -SCALE : SCALE) * along, z[i], 0) : 0.0f;
    const float dlength = length < EPS ? 0.0f : -along * factor;
    float grown[SIGNS], inverse[SIGNS];  // gradient of |p|, over |q|
    UNROLL for (int sign = 0; sign < SIGNS; sign++) {
      const float norm = room.norm_p(head, sign, row), slope = dlength * growth(room, head, sign, row);
      room.shares[(head * SIGNS + sign) * ROWS + row] = real ? slope * norm : 0.0f;
      grown[sign] = slope * room.norm_q(kind, sign, row), inverse[sign] = norm > 0 ? 1 / norm : 0.0f;
    }
    UNROLL for (int a = 0; a < SPAN; a++) {
      const float x = z[(p + a) * ROWS + row];
      float sum = 0;
      UNROLL for (int sign = 0; sign < SIGNS; sign++) {
        const float above = factor * room.dw[((kind * SIGNS + sign) * SPAN + a) * ROWS + row];
        sum += from_part(above + grown[sign] * slope_of_norm(part(x, sign) * inverse[sign]), x, sign);
      }
      dz[(p + a) * ROWS + row] = real ? sum : 0.0f;
    }
  }
  __syncthreads();
  EACH(2 * RANK) {
    const int kind = i / ROWS / RANK, j = i / ROWS % RANK, row = i % ROWS;
    const float q = z[Q * ROWS + i];
    float all = 0;
    UNROLL for (int sign = 0; sign < SIGNS; sign++) {
      const float norm = room.norm_q(kind, sign, row), u = norm > 0 ? part(q, sign) / norm : 0.0f;
      float share = 0;
      UNROLL for (int head = 0; head < HEADS; head++) share += room.shares[((kind * HEADS + head) * SIGNS + sign) * ROWS + row];
      float sum = share * slope_of_norm(u);
      UNROLL for (int a = 0; a < SPAN; a++)
        sum = fmaf(room.w[((kind * SIGNS + sign) * SPAN + a) * ROWS + row], dm[(a * RANK + j) * ROWS + row], sum);
      all += from_part(sum, q, sign);
    }
    dz[Q * ROWS + i] = all;
  }
  __syncthreads();
}
