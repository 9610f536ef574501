#include "orchestrator/control.h"

CONTROL_LATER(control_label_sandbox)
{
    (void)userdata;
    (void)ticket;
    (void)request;
    return err_set(err, ERR_UNIMPLEMENTED, "not in this build");
}

CONTROL_LATER(control_drain_sandbox)
{
    (void)userdata;
    (void)ticket;
    (void)request;
    return err_set(err, ERR_UNIMPLEMENTED, "not in this build");
}

CONTROL_LATER(control_remove_sandbox)
{
    (void)userdata;
    (void)ticket;
    (void)request;
    return err_set(err, ERR_UNIMPLEMENTED, "not in this build");
}
