/* `memcpy`, `memmove` and `memset` of the static binary for x86-64. The C library of the binary,
 * musl, has a `memmove` that moves a byte at a time wherever its regions overlap, and wherever they
 * are the same region: a core moves 3.6 GB/s so, and 50 and more with vectors. The functions
 * that move the bytes are those of zig's compiler-rt, compiled twice by `build-static.sh`: for every
 * x86-64 (SSE2), and for processors with AVX2. This file chooses between the two, and moves no byte
 * itself. It keeps no pointer to a function, because memory that can be written would hold it. */
#include <cpuid.h>
#include <stddef.h>

void *memcpy_sse2(void *to, const void *from, size_t size);
void *memcpy_avx2(void *to, const void *from, size_t size);
void *memmove_sse2(void *to, const void *from, size_t size);
void *memmove_avx2(void *to, const void *from, size_t size);
void *memset_sse2(void *to, int byte, size_t size);
void *memset_avx2(void *to, int byte, size_t size);

/* Whether the processor has AVX2 and the kernel keeps its registers. Until `choose` has run, which
 * is before `main`, the functions for every processor serve. */
static unsigned char has_avx2;

__attribute__((constructor)) static void choose(void) {
    unsigned a, b, c, d;
    const unsigned wanted = bit_OSXSAVE | bit_AVX;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & wanted) != wanted)
        return;
    unsigned low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    const unsigned registers = 1 << 1 | 1 << 2; /* XMM, and the upper halves of YMM */
    if ((low & registers) != registers)
        return;
    has_avx2 = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_AVX2);
}

void *memcpy(void *to, const void *from, size_t size) {
    return has_avx2 ? memcpy_avx2(to, from, size) : memcpy_sse2(to, from, size);
}

/* The AEAD of TLS and of QUIC moves each opened record onto itself (`open_in_place` of aws-lc-rs). */
void *memmove(void *to, const void *from, size_t size) {
    if (to == from)
        return to;
    return has_avx2 ? memmove_avx2(to, from, size) : memmove_sse2(to, from, size);
}

void *memset(void *to, int byte, size_t size) {
    return has_avx2 ? memset_avx2(to, byte, size) : memset_sse2(to, byte, size);
}
