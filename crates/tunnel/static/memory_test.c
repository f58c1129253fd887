/* Proves the functions of memory.c before they are linked into the static binary: each of them, for
 * each kind of processor that this machine can run, against loops over bytes. */
#include <stddef.h>
#include <stdio.h>

typedef void *copy(void *, const void *, size_t);
typedef void *set(void *, int, size_t);
copy memcpy, memcpy_sse2, memcpy_avx2, memmove, memmove_sse2, memmove_avx2;
set memset, memset_sse2, memset_avx2;

enum { MOST = 700, SHIFT = 70, ROOM = MOST + 4 * SHIFT, LARGE = 1 << 17 };

static unsigned char found[ROOM + LARGE], wanted[ROOM + LARGE], source[ROOM + LARGE];

static void fill(unsigned char *at, size_t size, unsigned seed) {
    for (size_t i = 0; i < size; i++)
        at[i] = (unsigned char)((i + seed) * 2654435761u >> 13);
}

static int differ(const char *what, size_t room, size_t size, size_t to, size_t from) {
    for (size_t i = 0; i < room; i++) {
        if (found[i] != wanted[i]) {
            printf("%s of %zu bytes from %zu to %zu: byte %zu is wrong\n", what, size, from, to, i);
            return 1;
        }
    }
    return 0;
}

static int copies(const char *what, copy *one, size_t room, size_t size, size_t to, size_t from) {
    fill(found, room, 1);
    fill(wanted, room, 1);
    fill(source, room, 2);
    for (size_t i = 0; i < size; i++)
        wanted[to + i] = source[from + i];
    int wrong = one(found + to, source + from, size) != found + to;
    return wrong | differ(what, room, size, to, from);
}

static int moves(const char *what, copy *one, size_t room, size_t size, size_t to, size_t from) {
    fill(found, room, 3);
    fill(wanted, room, 3);
    fill(source, room, 3);
    for (size_t i = 0; i < size; i++)
        wanted[to + i] = source[from + i];
    int wrong = one(found + to, found + from, size) != found + to;
    return wrong | differ(what, room, size, to, from);
}

static int sets(const char *what, set *one, size_t room, size_t size, size_t to) {
    fill(found, room, 4);
    fill(wanted, room, 4);
    for (size_t i = 0; i < size; i++)
        wanted[to + i] = 0xa5;
    int wrong = one(found + to, 0x7a5, size) != found + to;
    return wrong | differ(what, room, size, to, 0);
}

static int all(const char *kind, copy *cpy, copy *move, set *set) {
    printf("%s\n", kind);
    for (size_t size = 0; size <= MOST; size += size < 300 ? 1 : 29) {
        for (size_t to = 0; to < SHIFT; to += 1 + to / 8) {
            if (sets("memset", set, ROOM, size, to))
                return 1;
            for (size_t from = 0; from < 2 * SHIFT; from += 1 + from / 4)
                if (copies("memcpy", cpy, ROOM, size, to, from) ||
                    moves("memmove", move, ROOM, size, to, from) ||
                    moves("memmove", move, ROOM, size, from, to))
                    return 1;
        }
    }
    /* A record and a read of the carrier, moved by a head. */
    static const size_t sizes[] = {1 << 14, (1 << 14) + 17, 1 << 16, LARGE};
    static const size_t shifts[] = {0, 1, 5, 22, 32, 64, 4 * SHIFT - 1};
    for (int i = 0; i < 4; i++) {
        for (int k = 0; k < 7; k++) {
            const size_t size = sizes[i], shift = shifts[k];
            if (sets("memset", set, ROOM + LARGE, size, shift) ||
                copies("memcpy", cpy, ROOM + LARGE, size, shift, 3) ||
                moves("memmove", move, ROOM + LARGE, size, shift, 3) ||
                moves("memmove", move, ROOM + LARGE, size, 3, shift))
                return 1;
        }
    }
    return 0;
}

int main(void) {
    if (all("as the processor has it", memcpy, memmove, memset) ||
        all("SSE2", memcpy_sse2, memmove_sse2, memset_sse2))
        return 1;
    if (__builtin_cpu_supports("avx2"))
        return all("AVX2", memcpy_avx2, memmove_avx2, memset_avx2);
    return 0;
}
