/* Perfect foresight: what is needed furthest in the future goes first, and what is never needed again is not kept. */
#include "_foresight.h"

#include <stdlib.h>

#define NEVER (-1)
#define LEVELS_MAX 6

/* A set of places in the load, as bits under bits: the last one is found in as many steps as there are levels. */
typedef struct {
    uint64_t *words[LEVELS_MAX];
    int levels;
} Places;

static int make_places(Places *places, int64_t count)
{
    places->levels = 0;
    do {
        count = (count + 63) / 64;
        places->words[places->levels] = calloc(count ? count : 1, sizeof(uint64_t));
        if (!places->words[places->levels++])
            return 0;
    } while (count > 1);
    return 1;
}

static void drop_places(Places *places)
{
    for (int level = 0; level < places->levels; level++)
        free(places->words[level]);
}

static void add_place(Places *places, int64_t place)
{
    for (int level = 0; level < places->levels; level++, place >>= 6) {
        uint64_t *word = &places->words[level][place >> 6], before = *word;

        *word |= UINT64_C(1) << (place & 63);
        if (before)
            return;
    }
}

static void remove_place(Places *places, int64_t place)
{
    for (int level = 0; level < places->levels; level++, place >>= 6) {
        uint64_t *word = &places->words[level][place >> 6];

        *word &= ~(UINT64_C(1) << (place & 63));
        if (*word)
            return;
    }
}

/* Only asked of a set that is not empty: what is kept stands in it. */
static int64_t last_place(const Places *places)
{
    int64_t place = 0;

    for (int level = places->levels - 1; level >= 0; level--)
        place = place << 6 | (63 - __builtin_clzll(places->words[level][place]));
    return place;
}

/* For each access the place of its block's next one. */
static void next_uses(const int32_t *numbers, int64_t accesses, int64_t blocks, int32_t *last, int32_t *next)
{
    for (int64_t block = 0; block < blocks; block++)
        last[block] = NEVER;
    for (int64_t at = accesses - 1; at >= 0; at--) {
        next[at] = last[numbers[at]];
        last[numbers[at]] = (int32_t)at;
    }
}

static void replay(const int32_t *numbers, int64_t accesses, const int64_t *sizes, int64_t capacity,
                   const int32_t *next, int64_t *kept, Places *due, char *found)
{
    int64_t used = 0;

    for (int64_t at = 0; at < accesses; at++) {
        int32_t block = numbers[at];

        found[at] = kept[block] == sizes[block];
        if (kept[block]) {
            used -= kept[block];
            kept[block] = 0;
            remove_place(due, at);
        }
        if (next[at] == NEVER)
            continue;
        kept[block] = sizes[block];
        used += sizes[block];
        add_place(due, next[at]);
        while (used > capacity) {
            int64_t place = last_place(due), excess = used - capacity;
            int32_t victim = numbers[place];
            int64_t taken = kept[victim] < excess ? kept[victim] : excess;

            kept[victim] -= taken;
            used -= taken;
            if (!kept[victim])
                remove_place(due, place);
        }
    }
}

int foresee(const int32_t *numbers, int64_t accesses, const int64_t *sizes, int64_t blocks, int64_t capacity,
            char *found)
{
    int32_t *last = malloc((blocks + 1) * sizeof(int32_t));
    int32_t *next = malloc((accesses + 1) * sizeof(int32_t));
    int64_t *kept = calloc(blocks + 1, sizeof(int64_t));
    Places due;
    int made = make_places(&due, accesses) && last && next && kept;

    if (made) {
        next_uses(numbers, accesses, blocks, last, next);
        replay(numbers, accesses, sizes, capacity, next, kept, &due, found);
    }
    drop_places(&due);
    free(last);
    free(next);
    free(kept);
    return made;
}
