/* `sandstorm audit`: what was done and what was refused, and whether the record of it is whole.
 * Rows are printed as they come: there may be millions. next: client/audit.c. */
#include "cli/cli.h"
#include "cli/text.h"

#include <jansson.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define LAST_DEFAULT 100u

struct arguments {
    struct cli_common common;
    bool follow, verify, no_headers;
    uint64_t last, after;
    const char *output;
    const char *expect;
};

static const struct option options[] = {
    CLI_COMMON_OPTIONS(struct arguments, common),
    { "follow", 'f', OPTION_FLAG, NULL, "Then wait for new rows, until interrupted",
      offsetof(struct arguments, follow), 0, 0 },
    { "verify", 0, OPTION_FLAG, NULL,
      "Read everything, print nothing of it, and say whether it is whole",
      offsetof(struct arguments, verify), 0, 0 },
    { "expect", 0, OPTION_STRING, "SEQ:HASH",
      "With --verify: the head that an earlier one has printed must still be there",
      offsetof(struct arguments, expect), 0, 0 },
    { "last", 'n', OPTION_UINT, "COUNT", "The last so many rows: 100 unless said otherwise",
      offsetof(struct arguments, last), 1, UINT32_MAX },
    { "after", 0, OPTION_UINT, "SEQ", "All rows after this one", offsetof(struct arguments, after),
      1, 0 },
    { "output", 'o', OPTION_STRING, "FORMAT", "table, or json: one object a line",
      offsetof(struct arguments, output), 0, 0 },
    { "no-headers", 0, OPTION_FLAG, NULL, "Leave the first line out",
      offsetof(struct arguments, no_headers), 0, 0 },
    { 0 },
};

static const char *const examples[] = {
    "sandstorm audit",
    "The last 100 things that were done or refused",
    "sandstorm audit -f -o json | jq 'select(.allowed | not)'",
    "Watch what is refused",
    "sandstorm audit --verify",
    "Look for rows that were changed, removed or moved, from the first to the last",
    "sandstorm audit --verify --expect 4711:9f2c...",
    "The same, and that nobody has written the history anew since that head was printed",
    NULL,
};

static const struct option_page page = {
    .program = "sandstorm audit",
    .section = 1,
    .summary = "show or verify what was done here",
    .usage = "[OPTION...]",
    .options = options,
    .examples = examples,
};

struct printing {
    bool headers, json, follow, told;
};

/* A head that was printed earlier, and kept where the orchestrator cannot reach it. */
struct expected {
    uint64_t seq;
    char hash[2 * SANDSTORM_HASH_LEN + 1];
    bool seen, wrong;
};

static void print_columns(const char *time, const char *actor, const char *action,
                          const char *target, const char *verdict, const char *detail)
{
    (void)printf("%-20s  %-20s  %-20s  %-20s  %-7s  %s\n", time, actor, action, target, verdict,
                 detail);
}

static void print_row(const struct sandstorm_audit_row *row)
{
    char time[TEXT_TIME_MAX];
    text_time(row->time_unix_ms, time);
    CLEANUP_FREE char *actor = text_escape(row->actor), *action = text_escape(row->action),
                      *target = text_escape(row->target), *detail = text_escape(row->detail);
    if (actor && action && target && detail)
        print_columns(time, actor, action, target, row->allowed ? "allowed" : "denied", detail);
}

static void hex(const uint8_t hash[SANDSTORM_HASH_LEN], char out[2 * SANDSTORM_HASH_LEN + 1])
{
    for (size_t i = 0; i < SANDSTORM_HASH_LEN; i++)
        (void)snprintf(out + 2 * i, 3, "%02x", hash[i]);
}

static void print_json(const struct sandstorm_audit_row *row)
{
    char hash[2 * SANDSTORM_HASH_LEN + 1], time[TEXT_TIME_MAX];
    hex(row->hash, hash);
    text_time(row->time_unix_ms, time);
    json_t *object = json_pack(
        "{s:I, s:s, s:I, s:s, s:s, s:s, s:b, s:s, s:s}", "seq", (json_int_t)row->seq, "time", time,
        "time_unix_ms", (json_int_t)row->time_unix_ms, "actor", row->actor, "action", row->action,
        "target", row->target, "allowed", (int)row->allowed, "detail", row->detail, "hash", hash);
    /* ASCII alone: what could turn a terminal's text around is escaped by JSON's own rules. */
    CLEANUP_FREE char *text = object ? json_dumps(object, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
    if (text)
        (void)puts(text);
    json_decref(object);
}

static int say_fault(const struct sandstorm_audit_report *report, struct err *err)
{
    unsigned long long first = report->first, last = report->last;
    switch (report->fault) {
    case SANDSTORM_AUDIT_WHOLE:
        return 0;
    case SANDSTORM_AUDIT_CHANGED:
        return err_set(err, ERR_PROTOCOL,
                       "audit: row %llu was changed: it does not match its hash and the row before",
                       first);
    case SANDSTORM_AUDIT_MISSING:
        return err_set(err, ERR_PROTOCOL, "audit: rows %llu to %llu are missing", first, last);
    case SANDSTORM_AUDIT_UNORDERED:
        return err_set(err, ERR_PROTOCOL,
                       "audit: row %llu is out of order: it comes after row %llu", first, last);
    case SANDSTORM_AUDIT_CUT:
        return err_set(
            err, ERR_PROTOCOL,
            "audit: the end is missing: rows %llu to %llu were written and are not there", first,
            last);
    case SANDSTORM_AUDIT_NO_HEAD:
        break;
    }
    return err_set(
        err, ERR_PROTOCOL,
        "audit: the orchestrator has no note of where the audit ends, so rows after %llu "
        "may be missing",
        first);
}

/* Who follows does not see the end, so is told now. */
static void tell_follower(struct printing *printing, const struct sandstorm_audit_report *report)
{
    struct err err;
    if (!printing->told && say_fault(report, &err) < 0) {
        cli_complain(err.text);
        printing->told = true;
    }
    (void)fflush(stdout);
}

static bool on_row(void *userdata, const struct sandstorm_audit_row *row,
                   const struct sandstorm_audit_report *report)
{
    struct printing *printing = userdata;
    if (printing->headers)
        print_columns("TIME", "ACTOR", "ACTION", "TARGET", "VERDICT", "DETAIL");
    printing->headers = false;
    if (printing->json)
        print_json(row);
    else
        print_row(row);
    if (printing->follow)
        tell_follower(printing, report);
    return !ferror(stdout);
}

/* Verifying ends at the first fault. */
static bool on_verified(void *userdata, const struct sandstorm_audit_row *row,
                        const struct sandstorm_audit_report *report)
{
    struct expected *expected = userdata;
    char hash[2 * SANDSTORM_HASH_LEN + 1];
    if (row->seq == expected->seq) {
        hex(row->hash, hash);
        expected->seen = true;
        expected->wrong = strcmp(hash, expected->hash) != 0;
    }
    return report->fault == SANDSTORM_AUDIT_WHOLE && !expected->wrong;
}

static int parse_expected(const char *text, struct expected *ret, struct err *err)
{
    char *rest = NULL;
    if (!text)
        return 0;
    ret->seq = strtoull(text, &rest, 10);
    if (ret->seq == 0 || *rest != ':' ||
        strspn(rest + 1, "0123456789abcdef") != sizeof(ret->hash) - 1 ||
        rest[sizeof(ret->hash)] != '\0')
        return err_set(err, ERR_INVALID,
                       "--expect needs a head as --verify prints it: SEQ:HASH, 64 digits of hash");
    (void)memcpy(ret->hash, rest + 1, sizeof(ret->hash));
    return 0;
}

static int say_unexpected(const struct expected *expected, struct err *err)
{
    unsigned long long seq = expected->seq;
    if (expected->wrong)
        return err_set(
            err, ERR_PROTOCOL,
            "audit: row %llu is not the one that was there when its head was printed: the "
            "history was written anew",
            seq);
    if (seq && !expected->seen)
        return err_set(err, ERR_PROTOCOL,
                       "audit: row %llu was there when its head was printed, and is not there now",
                       seq);
    return 0;
}

static int check_arguments(const struct arguments *arguments, struct err *err)
{
    if (arguments->output && strcmp(arguments->output, "table") != 0 &&
        strcmp(arguments->output, "json") != 0)
        return err_set(err, ERR_INVALID, "--output is table or json, not \"%.64s\"",
                       arguments->output);
    if (arguments->last && arguments->after)
        return err_set(err, ERR_INVALID, "give --last or --after, not both");
    if (arguments->verify &&
        (arguments->follow || arguments->last || arguments->after || arguments->output))
        return err_set(err, ERR_INVALID,
                       "--verify reads everything once: leave --follow, --last, --after and "
                       "--output out");
    if (arguments->expect && !arguments->verify)
        return err_set(err, ERR_INVALID, "--expect goes with --verify");
    return 0;
}

static int act(const void *values, char **words, struct sandstorm_error *error)
{
    const struct arguments *arguments = values;
    (void)words;
    struct err err = { 0 };
    struct sandstorm_audit_report report;
    CLEANUP_SANDSTORM struct sandstorm_client *client = NULL;
    struct expected expected = { 0 };
    if (check_arguments(arguments, &err) < 0 ||
        parse_expected(arguments->expect, &expected, &err) < 0)
        return cli_error(&err, error);
    bool json = arguments->output && strcmp(arguments->output, "json") == 0;
    struct printing printing = { .headers = !arguments->no_headers && !json,
                                 .json = json,
                                 .follow = arguments->follow };
    bool window = !arguments->verify && !arguments->after;
    const struct sandstorm_audit_options audit = {
        .after_seq = arguments->after,
        .last = !window           ? 0
                : arguments->last ? (uint32_t)arguments->last
                                  : LAST_DEFAULT,
        .follow = arguments->follow,
        .each = arguments->verify ? on_verified : on_row,
        .userdata = arguments->verify ? (void *)&expected : &printing,
    };
    if (cli_connect(&arguments->common, &client, error) < 0 ||
        sandstorm_audit(client, &audit, &report, error) < 0)
        return -1;
    if (say_fault(&report, &err) < 0 || say_unexpected(&expected, &err) < 0)
        return cli_error(&err, error);
    char hash[2 * SANDSTORM_HASH_LEN + 1];
    hex(report.hash, hash);
    if (arguments->verify)
        (void)printf("audit: %llu rows, chain is whole, head %llu:%s\n",
                     (unsigned long long)report.rows, (unsigned long long)report.seq, hash);
    return 0;
}

const struct cli_verb cli_audit = {
    .name = "audit", .page = &page, .act = act, .size = sizeof(struct arguments)
};
