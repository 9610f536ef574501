/* HOST:PORT as people write it, and as they miswrite it. */
#include "common/rpc_diagnose.h"

#include <criterion/criterion.h>
#include <string.h>

Test(endpoint, host_and_port_are_taken_apart)
{
    static const struct {
        const char *text, *host, *port;
    } rows[] = {
        { "orchestrator.example.com:5000", "orchestrator.example.com", "5000" },
        { "127.0.0.1:1", "127.0.0.1", "1" },
        { "[::1]:65535", "::1", "65535" },
        { "[fe80::1%eth0]:5000", "fe80::1%eth0", "5000" },
        { "h:00080", "h", "00080" },
        { "h:0", "h", "0" },
    };
    for (size_t i = 0; i < ELEMENTS(rows); i++) {
        struct err err = { 0 };
        struct endpoint endpoint;
        cr_assert_eq(endpoint_parse(rows[i].text, &endpoint, &err), 0, "%s", err.text);
        cr_expect_str_eq(endpoint.host, rows[i].host);
        cr_expect_str_eq(endpoint.port, rows[i].port);
    }
}

Test(endpoint, anything_else_is_refused_with_an_example)
{
    static const char *const rows[] = {
        "",           ":",       "host",    "host:",    ":5000",   "host:port",
        "host:65536", "host:-1", "host: 1", "host:1 ",  "host:1a", "host:000001",
        "::1:5000",   "[::1]",   "[]:5000", "[::1]x:1", "[::1:1",  "[::1]:5000x"
    };
    for (size_t i = 0; i < ELEMENTS(rows); i++) {
        struct err err = { 0 };
        struct endpoint endpoint;
        cr_expect_eq(endpoint_parse(rows[i], &endpoint, &err), -1, "\"%s\"", rows[i]);
        cr_expect_eq(err.code, ERR_INVALID);
        cr_expect_not_null(strstr(err.text, "HOST:PORT"));
    }
}

Test(endpoint, a_host_of_any_length_is_bounded)
{
    char text[ENDPOINT_HOST_MAX + 8];
    struct err err = { 0 };
    struct endpoint endpoint;
    (void)memset(text, 'h', sizeof(text));
    (void)memcpy(text + ENDPOINT_HOST_MAX, ":1", 3);
    cr_expect_eq(endpoint_parse(text, &endpoint, &err), 0, "%s", err.text);
    (void)memcpy(text + ENDPOINT_HOST_MAX, "h:1", 4);
    cr_expect_eq(endpoint_parse(text, &endpoint, &err), -1);
}
