# sandstorm_test(FILE LIBRARY...): one executable from tests/unit/FILE, because several of them
# replace libc functions for themselves, and one CTest entry "suite.case" for each Criterion case in
# it. The cases are listed after the build by running the binary, as gtest_discover_tests does.
#
# This file is also the script that lists them: cmake -D PROGRAM=... -D OUTPUT=... -P this file.

# A directory of tests may set these two for itself.
set(SANDSTORM_TEST_TIMEOUT 60)
set(SANDSTORM_TEST_LABEL unit)
# Criterion lives on when a leak is found at the exit of a case, and says "Tested: 0" with exit
# status 0 when a filter matches nothing.
set(SANDSTORM_TEST_FAILURES
  "LeakSanitizer|AddressSanitizer|ThreadSanitizer|runtime error:|Synthesis: Tested: 0")

if(CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  execute_process(
    COMMAND ${CMAKE_COMMAND} -E env ASAN_OPTIONS=detect_leaks=0 LC_ALL=C ${PROGRAM} --list
    OUTPUT_VARIABLE listing
    RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${PROGRAM} --list failed: ${status}")
  endif()
  string(REPLACE "\n" ";" lines "${listing}")
  set(script "")
  set(suite "")
  foreach(line IN LISTS lines)
    if(line MATCHES "^([A-Za-z0-9_]+): [0-9]+ tests?$")
      set(suite ${CMAKE_MATCH_1})
    elseif(line MATCHES "([A-Za-z0-9_]+)$")
      set(name ${suite}.${CMAKE_MATCH_1})
      string(APPEND script
        "add_test([=[${name}]=] [=[${PROGRAM}]=] --filter=${suite}/${CMAKE_MATCH_1})\n"
        "set_tests_properties([=[${name}]=] PROPERTIES LABELS ${LABEL}"
        " TIMEOUT ${TIMEOUT}"
        " FAIL_REGULAR_EXPRESSION [=[${SANDSTORM_TEST_FAILURES}]=]"
        " ENVIRONMENT [=[LSAN_OPTIONS=suppressions=${SUPPRESSIONS}:print_suppressions=0]=])\n")
    endif()
  endforeach()
  if(script STREQUAL "")
    message(FATAL_ERROR "${PROGRAM} lists no test")
  endif()
  file(WRITE ${OUTPUT} "${script}")
  return()
endif()

set(SANDSTORM_TESTS_SCRIPT ${CMAKE_CURRENT_LIST_FILE})

function(sandstorm_test file)
  get_filename_component(target ${file} NAME_WE)
  add_executable(${target} ${file})
  target_link_libraries(${target} PRIVATE sandstorm_flags ${ARGN} ${CRITERION} Threads::Threads)
  set(list ${CMAKE_CURRENT_BINARY_DIR}/${target}_tests.cmake)
  add_custom_command(TARGET ${target} POST_BUILD
    COMMAND ${CMAKE_COMMAND} -D PROGRAM=$<TARGET_FILE:${target}> -D OUTPUT=${list}
      -D SUPPRESSIONS=${CMAKE_SOURCE_DIR}/tests/lsan.supp -D LABEL=${SANDSTORM_TEST_LABEL}
      -D TIMEOUT=${SANDSTORM_TEST_TIMEOUT} -P ${SANDSTORM_TESTS_SCRIPT}
    BYPRODUCTS ${list}
    VERBATIM)
  set(include ${CMAKE_CURRENT_BINARY_DIR}/${target}_include.cmake)
  file(WRITE ${include}
    "if(EXISTS [=[${list}]=])\n"
    "  include([=[${list}]=])\n"
    "else()\n"
    "  add_test(${target}.not_built false)\n"
    "endif()\n")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${include})
endfunction()
