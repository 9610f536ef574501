/* CRC-32C against the vectors of RFC 3720, B.4, whole and in pieces. */
#include "common/crc32c.h"

#include <criterion/criterion.h>
#include <string.h>

Test(crc32c, agrees_with_the_rfc)
{
    uint8_t bytes[32];
    (void)memset(bytes, 0, sizeof(bytes));
    cr_expect_eq(crc32c(0, bytes, sizeof(bytes)), 0x8a9136aau);
    (void)memset(bytes, 0xff, sizeof(bytes));
    cr_expect_eq(crc32c(0, bytes, sizeof(bytes)), 0x62a8ab43u);
    for (unsigned i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)i;
    cr_expect_eq(crc32c(0, bytes, sizeof(bytes)), 0x46dd794eu);
    cr_expect_eq(crc32c(0, "123456789", 9), 0xe3069283u);
    cr_expect_eq(crc32c(0, "", 0), 0u);
}

Test(crc32c, pieces_make_the_whole)
{
    const char text[] = "what is written in pieces is read in one";
    uint32_t whole = crc32c(0, text, sizeof(text));
    for (size_t i = 0; i <= sizeof(text); i++)
        cr_expect_eq(crc32c(crc32c(0, text, i), text + i, sizeof(text) - i), whole);
}
