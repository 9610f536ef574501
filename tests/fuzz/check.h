/* What the fuzz targets share: a check that the fuzzer sees, and a reader of its input. */
#pragma once

#include "common/macros.h"

#include <stdbool.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline void check(bool good)
{
    if (!good)
        __builtin_trap();
}

struct input {
    const uint8_t *data;
    size_t size;
};

static inline uint8_t input_byte(struct input *input)
{
    if (input->size == 0)
        return 0;
    input->size--;
    return *input->data++;
}

/* Two bytes of length, then as many bytes as are there. */
static inline const uint8_t *input_block(struct input *input, size_t *ret_size)
{
    size_t size = input_byte(input);
    size |= (size_t)input_byte(input) << 8;
    size = MIN(size, input->size);
    const uint8_t *data = input->data;
    input->data += size;
    input->size -= size;
    *ret_size = size;
    return data;
}
