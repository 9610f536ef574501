# sandstorm_man(TARGET SECTION [NAME ARG...]): the manual page that the program prints with --man,
# from the same table that it parses its options with.
find_program(SCDOC scdoc REQUIRED)

function(sandstorm_man target section)
  get_target_property(name ${target} OUTPUT_NAME)
  if(NOT name)
    set(name ${target})
  endif()
  set(page ${CMAKE_BINARY_DIR}/man/${name}.${section})
  add_custom_command(
    OUTPUT ${page}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/man
    COMMAND sh -c "$<TARGET_FILE:${target}> --man | ${SCDOC} > ${page}"
    DEPENDS ${target}
    VERBATIM)
  add_custom_target(${target}-man ALL DEPENDS ${page})
  install(FILES ${page} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section})
endfunction()
