# sandstorm_man(TARGET SECTION [VERB...]): the manual pages that the program prints with --man, its own
# and one for each verb, from the same tables that it parses its options with.
find_program(SCDOC scdoc REQUIRED)

function(sandstorm_man target section)
  get_target_property(name ${target} OUTPUT_NAME)
  if(NOT name)
    set(name ${target})
  endif()
  set(pages)
  foreach(verb IN ITEMS "" ${ARGN})
    set(page ${CMAKE_BINARY_DIR}/man/${name})
    if(verb)
      string(APPEND page -${verb})
    endif()
    string(APPEND page .${section})
    add_custom_command(
      OUTPUT ${page}
      COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/man
      COMMAND sh -c "$<TARGET_FILE:${target}> --man ${verb} | ${SCDOC} > ${page}"
      DEPENDS ${target}
      VERBATIM)
    list(APPEND pages ${page})
  endforeach()
  add_custom_target(${target}-man ALL DEPENDS ${pages})
  install(FILES ${pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section})
endfunction()
