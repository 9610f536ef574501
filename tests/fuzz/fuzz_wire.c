/* Arbitrary bytes as a message of any of our types; the first byte picks the type. What passes the
 * guard can be packed again, and what was packed means the same when it is read once more. */
#include "common/wire.h"
#include "tests/fuzz/check.h"
#include "tests/unit/wire_types.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = { data, size };
    const ProtobufCMessageDescriptor *type = wire_types[input_byte(&input) % ELEMENTS(wire_types)];
    struct err err = { 0 };
    ProtobufCMessage *message = NULL, *again = NULL;
    int scanned = wire_scan(type, input.data, input.size, &err);
    check(scanned == 0 || err.code != ERR_NONE);
    int r = wire_unpack(type, input.data, input.size, &message, &err);
    check(r < 0 || scanned == 0);
    if (r < 0)
        return 0;
    uint8_t *packed, *repacked;
    size_t packed_size, repacked_size;
    /* A number may need more bytes than it came in: near the bound the message may not fit. */
    if (wire_pack(message, &packed, &packed_size, &err) == 0) {
        check(wire_unpack(type, packed, packed_size, &again, &err) == 0);
        check(wire_pack(again, &repacked, &repacked_size, &err) == 0);
        check(packed_size == repacked_size && memcmp(packed, repacked, packed_size) == 0);
        free(packed);
        free(repacked);
    } else {
        check(err.code == ERR_EXHAUSTED);
    }
    wire_free(message);
    wire_free(again);
    return 0;
}
