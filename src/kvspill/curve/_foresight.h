/* Perfect foresight over a load: which accesses a cache finds that knows the future. */
#ifndef KVSPILL_FORESIGHT_H
#define KVSPILL_FORESIGHT_H

#include <stdint.h>

/* Sets found[i] to 1 where access i finds all of its block; 0 where there was no memory for it.
 *
 * It decides exactly as belady_found_bytes in kvspill.serving.bounds does. */
int foresee(const int32_t *numbers, int64_t accesses, const int64_t *sizes, int64_t blocks, int64_t capacity,
            char *found);

#endif
