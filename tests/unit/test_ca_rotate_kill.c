/* kill -9 before every step of a rotation that touches the disk: whatever is left opens, fits
 * together, is mended by the next start of the orchestrator, and the rotation can go on. */
#include "tests/unit/disk_steps.h"
#include "tests/unit/rotate_fixture.h"

/* cppcheck-suppress unknownMacro */
TestSuite(ca_rotate_kill, .init = fixture_setup, .fini = fixture_teardown, .timeout = 120);

/* What readers find right after the kill, before anything is mended. */
static void expect_usable(unsigned n)
{
    CLEANUP_CA struct ca *ca = state_ca();
    cr_assert(is_matching_pair(STATE "/server") && is_matching_pair(ADMIN), "step %u", n);
    cr_assert(is_signed_by(STATE "/server/cert.pem", ca->cert) ||
                  is_signed_by(STATE "/server/cert.pem", ca->old),
              "step %u", n);
    cr_assert_geq(count_entries(STATE "/ca"), 2u);
}

static void expect_mended(unsigned n)
{
    struct err err = { 0 };
    OK(ca_refresh_server(STATE, &err));
    CLEANUP_CA struct ca *ca = state_ca();
    cr_assert_eq(count_entries(STATE), 3u, "step %u", n);
    cr_assert_eq(count_entries(STATE "/ca"), ca->old ? 3u : 2u, "step %u", n);
    cr_assert_eq(count_entries(STATE "/server"), 3u, "step %u", n);
    cr_assert_eq(count_entries(STATE "/clients"), 1u, "step %u", n);
    cr_assert(file_holds(STATE "/server/ca.pem", ca_bundle(ca)), "step %u", n);
    cr_assert(file_holds(ADMIN "/ca.pem", ca_bundle(ca)), "step %u", n);
    cr_assert(is_matching_pair(STATE "/server") && is_matching_pair(ADMIN), "step %u", n);
    const X509 *signer = is_signed_by(STATE "/server/cert.pem", ca->cert) ? ca->cert : ca->old;
    cr_assert(is_signed_by(STATE "/server/cert.pem", signer), "step %u", n);
    cr_assert(is_signed_by(ADMIN "/cert.pem", ca->cert) || is_signed_by(ADMIN "/cert.pem", ca->old),
              "step %u", n);
    char fingerprint[CA_FINGERPRINT_TEXT_MAX];
    fingerprint_of((X509 *)signer, fingerprint);
    cr_assert_str_eq(ca_fingerprint(ca), fingerprint);
}

static void child_begin(void)
{
    if (ca_rotate_begin(STATE, NULL) < 0)
        _exit(1);
}

static void child_finish(void)
{
    if (ca_rotate_finish(STATE, 0, NULL) < 0)
        _exit(1);
}

static bool in_rotation(void)
{
    return access(STATE "/ca/old.pem", F_OK) == 0;
}

Test(ca_rotate_kill, begin_has_happened_or_not)
{
    unsigned n = 1, begun = 0;
    for (bool killed = true; killed; n++) {
        struct err err = { 0 };
        make_state();
        copy_file(STATE "/ca/ca.pem", "old-ca");
        killed = run_and_kill(child_begin, n);
        expect_usable(n);
        begun += in_rotation();
        bool was_begun = in_rotation();
        cr_assert(same_files(was_begun ? STATE "/ca/old.pem" : STATE "/ca/ca.pem", "old-ca"));
        expect_mended(n);
        cr_assert_eq(in_rotation(), was_begun, "step %u", n);
        if (was_begun)
            FAILS(ca_rotate_begin(STATE, &err), ERR_PRECONDITION);
        else
            OK(ca_rotate_begin(STATE, &err));
        OK(ca_rotate_finish(STATE, 0, &err));
        expect_mended(n);
        cr_assert_not(in_rotation());
        remove_state();
    }
    cr_assert(n > 30 && begun > 10 && begun < n - 10, "%u steps, begun after %u", n, begun);
}

/* The repetition comes first here, without the mending in between. */
Test(ca_rotate_kill, begin_can_be_repeated_at_once)
{
    unsigned n = 1;
    for (bool killed = true; killed; n++) {
        struct err err = { 0 };
        make_state();
        killed = run_and_kill(child_begin, n);
        bool was_begun = in_rotation();
        int r = ca_rotate_begin(STATE, &err);
        cr_assert(was_begun ? r == -1 && err.code == ERR_PRECONDITION : r == 0, "step %u: %s", n,
                  err.text);
        CLEANUP_CA struct ca *ca = state_ca();
        cr_assert(ca->old && file_holds(STATE "/server/ca.pem", ca_bundle(ca)) &&
                  file_holds(ADMIN "/ca.pem", ca_bundle(ca)));
        cr_assert_eq(count_entries(STATE), 3u, "step %u", n);
        remove_state();
    }
    cr_assert_gt(n, 30u);
}

Test(ca_rotate_kill, finish_has_happened_or_can_be_repeated)
{
    unsigned n = 1, finished = 0;
    for (bool killed = true; killed; n++) {
        struct err err = { 0 };
        make_state();
        OK(ca_rotate_begin(STATE, &err));
        killed = run_and_kill(child_finish, n);
        expect_usable(n);
        bool was_finished = !in_rotation();
        finished += was_finished;
        expect_mended(n);
        cr_assert_eq(!in_rotation(), was_finished, "step %u", n);
        if (was_finished)
            FAILS(ca_rotate_finish(STATE, 0, &err), ERR_PRECONDITION);
        else
            OK(ca_rotate_finish(STATE, 0, &err));
        expect_mended(n);
        CLEANUP_CA struct ca *ca = state_ca();
        cr_assert_null(ca->old);
        cr_assert(is_signed_by(ADMIN "/cert.pem", ca->cert), "step %u", n);
        cr_assert(is_signed_by(STATE "/server/cert.pem", ca->cert), "step %u", n);
        remove_state();
    }
    cr_assert(n > 30 && finished > 5 && finished < n - 10, "%u steps, %u", n, finished);
}
