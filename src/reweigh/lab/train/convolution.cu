// 3x3 convolutions of C channels to C, stride 1, padding 1, channels last, bfloat16 in and out, sums in float32.
// Compiled with -DC= -DH= -DW=, and for a block: -DTH= rows of an image, -DOUT= channels that it gives, and -DWARPS=
// of a convolution or -DGROUPS= of a correlation. What is computed is said in convolution.py.
#define CHUNKS (C / 8)  // of 16 bytes, in a pixel
#define SHIFT (C == 16 ? 2 : 1)
#define HALO ((TH + 2) * (W + 2))
#define PIXELS (TH * W)
typedef unsigned int u32;
typedef unsigned short u16;

// where chunk k of pixel p lies: eight neighbouring pixels' chunks are in different banks
__device__ inline u32 place(int p, int k) { return (u32)(p * CHUNKS + (k ^ ((p >> SHIFT) & (CHUNKS - 1)))) * 16; }
__device__ inline u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }
__device__ inline void fetch(u32 to, const void* from, bool there) {
    int bytes = there ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes));
}
__device__ inline void arrived() { asm volatile("cp.async.commit_group;\ncp.async.wait_group 0;" ::: "memory"); }
__device__ inline void matrices(u32 (&r)[4], u32 at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
}
__device__ inline void transposed(u32 (&r)[4], u32 at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
}
__device__ inline void product(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ inline u32 pack(float low, float high) {
    u32 r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}

extern __shared__ __align__(128) unsigned char room[];

// the strip of rows [row, row + TH) of image n, and a pixel around it
__device__ inline void fetch_halo(u32 tile, const u16* x, int n, int row, int threads) {
    for (int i = threadIdx.x; i < HALO * CHUNKS; i += threads) {
        int p = i / CHUNKS, k = i % CHUNKS;
        int h = row + p / (W + 2) - 1, w = p % (W + 2) - 1;
        bool there = h >= 0 && h < H && w >= 0 && w < W;
        const u16* from = there ? x + ((size_t)(n * H + h) * W + w) * C + k * 8 : x;
        fetch(tile + place(p, k), from, there);
    }
}

// y[m] = sum over taps of x[m + tap] w[tap]; turned, with w[8 - tap] transposed, it is the gradient of x.
// Weights lie in shared memory as they come, in rows [tap][out] of `in`; a row is 16 bytes longer than it is, so that no
// two rows of eight share banks.
template <bool turned>
__device__ inline void convolved(const u16* x, const float* w, u16* y) {
    const int ROWS = turned ? C : OUT, LONG = turned ? OUT : C, PITCH = LONG + 8;
    unsigned char* tile = room;
    u16* weights = (u16*)(room + HALO * C * 2);
    const int MT = PIXELS / (16 * WARPS), NT = OUT / 8;  // tiles of 16 pixels in a warp; of 8 channels
    int strip = blockIdx.x, n = strip / (H / TH), row = strip % (H / TH) * TH, part = blockIdx.y * OUT;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    fetch_halo(shared_address(tile), x, n, row, 32 * WARPS);
    #pragma unroll 4
    for (int i = threadIdx.x; i < 9 * ROWS * LONG / 4; i += 32 * WARPS) {
        int k = i % (LONG / 4), tap = i / (LONG / 4) % 9, out = i / (9 * (LONG / 4));  // w[out][tap][in]
        float4 v = *(const float4*)(w + ((out + (turned ? 0 : part)) * 9 + tap) * C + k * 4 + (turned ? part : 0));
        u32* to = (u32*)(weights + (tap * ROWS + out) * PITCH + k * 4);
        to[0] = pack(v.x, v.y);
        to[1] = pack(v.z, v.w);
    }
    arrived();
    __syncthreads();
    float sums[MT][NT][4] = {};
    int first[MT];
    #pragma unroll
    for (int t = 0; t < MT; t++) {
        int m = (warp * MT + t) * 16 + (lane & 7) + ((lane >> 3) & 1) * 8;
        first[t] = m / W * (W + 2) + m % W;
    }
    #pragma unroll
    for (int tap = 0; tap < 9; tap++) {
        const u16* of_tap = weights + (turned ? 8 - tap : tap) * ROWS * PITCH;
        #pragma unroll
        for (int ks = 0; ks < C / 16; ks++) {
            u32 b[NT / 2][4];
            #pragma unroll
            for (int j = 0; j < NT / 2; j++) {
                // four matrices: (k, n), (k + 8, n), (k, n + 8), (k + 8, n + 8)
                int k = ks * 16, m = lane >> 3;
                int row_k = k + (m & 1) * 8, row_n = j * 16 + (m >> 1) * 8, within = lane & 7;
                if (turned) transposed(b[j], shared_address(of_tap + (row_k + within) * PITCH + row_n));
                else matrices(b[j], shared_address(of_tap + (row_n + within) * PITCH + row_k));
            }
            #pragma unroll
            for (int t = 0; t < MT; t++) {
                u32 a[4];
                matrices(a, shared_address(tile) + place(first[t] + tap / 3 * (W + 2) + tap % 3, ks * 2 + (lane >> 4)));
                #pragma unroll
                for (int j = 0; j < NT; j++) product(sums[t][j], a, b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
            }
        }
    }
    u16* to = y + (size_t)(n * H + row) * W * C + part;
    #pragma unroll
    for (int t = 0; t < MT; t++) {
        #pragma unroll
        for (int j = 0; j < NT; j++) {
            int m = (warp * MT + t) * 16 + lane / 4, c = j * 8 + lane % 4 * 2;
            *(u32*)(to + m * C + c) = pack(sums[t][j][0], sums[t][j][1]);
            *(u32*)(to + (m + 8) * C + c) = pack(sums[t][j][2], sums[t][j][3]);
        }
    }
}
extern "C" __global__ void __launch_bounds__(32 * WARPS) convolve(const u16* x, const float* w, u16* y) {
    convolved<false>(x, w, y);
}
extern "C" __global__ void __launch_bounds__(32 * WARPS) turn(const u16* x, const float* w, u16* y) {
    convolved<true>(x, w, y);
}

// parts[block][out][tap][in] = sum over the block's pixels m of g[m][out] x[m + tap][in]; three warps, one for each row
// of taps, share a group of pixels
extern "C" __global__ void __launch_bounds__(96 * GROUPS) correlate(const u16* x, const u16* g, float* parts, int strips) {
    const int MT = OUT / 16, NT = C / 8, THREADS = 96 * GROUPS, KEPT = 3 * MT * NT * 4;
    unsigned char *tile = room, *gradient = room + HALO * C * 2;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, dy = warp % 3, group = warp / 3, part = blockIdx.y * OUT;
    float sums[3][MT][NT][4] = {};
    for (int strip = blockIdx.x; strip < strips; strip += gridDim.x) {
        int n = strip / (H / TH), row = strip % (H / TH) * TH;
        __syncthreads();
        fetch_halo(shared_address(tile), x, n, row, THREADS);
        const u16* from = g + (size_t)(n * H + row) * W * C;
        for (int i = threadIdx.x; i < PIXELS * OUT / 8; i += THREADS) {
            int p = i / (OUT / 8), k = i % (OUT / 8) + part / 8;
            fetch(shared_address(gradient) + place(p, k), from + p * C + k * 8, true);
        }
        arrived();
        __syncthreads();
        for (int t = group; t < PIXELS / 16; t += GROUPS) {
            u32 a[MT][4];
            int pixel = t * 16 + (lane & 7) + ((lane >> 4) & 1) * 8;
            #pragma unroll
            for (int i = 0; i < MT; i++)
                transposed(a[i], shared_address(gradient) + place(pixel, part / 8 + i * 2 + ((lane >> 3) & 1)));
            int m = t * 16 + (lane & 7) + ((lane >> 3) & 1) * 8;
            int first = (m / W + dy) * (W + 2) + m % W;
            #pragma unroll
            for (int dx = 0; dx < 3; dx++) {
                #pragma unroll
                for (int j = 0; j < NT / 2; j++) {
                    u32 b[4];
                    transposed(b, shared_address(tile) + place(first + dx, j * 2 + (lane >> 4)));
                    #pragma unroll
                    for (int i = 0; i < MT; i++) {
                        product(sums[dx][i][2 * j], a[i], b[0], b[1]);
                        product(sums[dx][i][2 * j + 1], a[i], b[2], b[3]);
                    }
                }
            }
        }
    }
    __syncthreads();
    float* rest = (float*)room;
#define EACH(body)                                                     \
    _Pragma("unroll") for (int dx = 0; dx < 3; dx++)                   \
        _Pragma("unroll") for (int i = 0; i < MT; i++)                 \
            _Pragma("unroll") for (int j = 0; j < NT; j++)             \
                _Pragma("unroll") for (int e = 0; e < 4; e++) {        \
                    int at = ((dx * MT + i) * NT + j) * 4 + e;         \
                    body;                                              \
                }
    if (group != 0) EACH(rest[(((group - 1) * 3 + dy) * KEPT + at) * 32 + lane] = sums[dx][i][j][e])
    __syncthreads();
    if (group != 0) return;
    for (int other = 0; other < GROUPS - 1; other++)
        EACH(sums[dx][i][j][e] += rest[((other * 3 + dy) * KEPT + at) * 32 + lane])
    float* to = parts + (size_t)blockIdx.x * 9 * C * C;
    EACH(int out = part + i * 16 + lane / 4 + (e >> 1) * 8; int in = j * 8 + lane % 4 * 2 + (e & 1); (void)at;
         to[(out * 9 + dy * 3 + dx) * C + in] = sums[dx][i][j][e])
}

// total[i] = sum of parts[b][i] over blocks b, in a fixed order; 32 numbers and 16 shares of the parts in a block
extern "C" __global__ void __launch_bounds__(512) gather(const float* parts, float* total, int blocks) {
    __shared__ float shares[16][33];
    int column = threadIdx.x % 32, share = threadIdx.x / 32;
    const float* from = parts + blockIdx.x * 32 + column;
    float sum = 0;
    #pragma unroll 8
    for (int b = share; b < blocks; b += 16) sum += from[(size_t)b * 9 * C * C];
    shares[share][column] = sum;
    __syncthreads();
    if (share != 0) return;
    #pragma unroll
    for (int s = 1; s < 16; s++) sum += shares[s][column];
    total[blockIdx.x * 32 + column] = sum;
}
