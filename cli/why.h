/* Why a sandbox can or cannot run commands: rules over what the orchestrator knows of it, each with
 * words for what is the matter and what to do. Pure; any thread. */
#pragma once

#include "client/sandstorm.h"

#include <stddef.h>

#define WHY_TEXT_MAX 512u

struct why_facts {
    const struct sandstorm_sandbox *sandbox;
    int64_t now_ms;
    const char *version; /* of this client, which is the orchestrator's as a rule */
};

enum why_weight {
    WHY_BLOCKS, /* for this reason no command starts there */
    WHY_CAUSE,  /* a cause that is likely, when it is away */
    WHY_NOTE,   /* worth knowing */
};

/* A rule of the table that holds. Texts may hold what an agent said: escape them. */
struct why_finding {
    const char *name; /* of the rule, for tests: "clock" */
    enum why_weight weight;
    char words[WHY_TEXT_MAX];
    char advice[WHY_TEXT_MAX];
};

#define WHY_FINDINGS_MAX 20u
/* Those that hold, the most probable first. Returns how many. */
size_t why_find(const struct why_facts *facts, struct why_finding findings[WHY_FINDINGS_MAX]);
/* Names of all rules, NULL-ended, in the order of the table. */
const char *const *why_names(void);
/* -1, 0 or 1 as the numbers of a version say; words after them do not count. */
int why_compare_versions(const char *a, const char *b);
