/* Owns the table of named events; read by whoever raises one, see orchestrator/logbook.h. */
#include "common/log_ids.h"

const struct log_event_kind event_sandbox_online = {
    "sandbox_online",
    "sandbox online",
    "b74582dcf15d23a2083f593f3ef93335",
};
const struct log_event_kind event_sandbox_disconnected = {
    "sandbox_disconnected",
    "sandbox disconnected",
    "e29a97dc60fa74e0bc55878ca862940a",
};
const struct log_event_kind event_sandbox_state = {
    "sandbox_state",
    "sandbox state",
    "0b7506d0ddfe77886ae9987e38d2ccc2",
};
const struct log_event_kind event_sandbox_note = {
    "sandbox_note",
    "sandbox event",
    "fcea1acf683a06f3a70b5f3679203c8a",
};
const struct log_event_kind event_command_ordered = {
    "command_ordered",
    "command ordered",
    "403ebcadba529fa252ce39f4334e1b14",
};
const struct log_event_kind event_command_started = {
    "command_started",
    "command started",
    "ecb9c4936377b8c8359e475018107999",
};
const struct log_event_kind event_command_ended = {
    "command_ended",
    "command ended",
    "e7a685f53cd2373a761b0f05a55be9fc",
};
const struct log_event_kind event_log_left_out = {
    "log_left_out",
    "log lines were left out",
    "415405b7273ad40231c0f1b5124cb28a",
};
