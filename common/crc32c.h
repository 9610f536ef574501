/* CRC-32C (Castagnoli), the checksum of everything that we write in records: a torn or rotten one
 * is found when it is read. Not a protection against anybody. Any thread. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Goes on from `crc`, which is 0 at the beginning. */
uint32_t crc32c(uint32_t crc, const void *data, size_t size);
