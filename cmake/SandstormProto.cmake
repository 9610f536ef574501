# sandstorm_proto(TARGET ROOT FILE...): protobuf-c code for FILEs below ROOT, in a library of its own
# because protoc-c's output does not compile with our warnings.
find_program(PROTOC_C protoc-c REQUIRED)
find_program(PROTOC protoc REQUIRED)

function(sandstorm_proto target root)
  set(sources)
  foreach(file IN LISTS ARGN)
    string(REGEX REPLACE "\\.proto$" ".pb-c" base ${CMAKE_BINARY_DIR}/generated/${file})
    add_custom_command(
      OUTPUT ${base}.c ${base}.h
      COMMAND ${PROTOC_C} -I${root} --c_out=${CMAKE_BINARY_DIR}/generated ${file}
      DEPENDS ${root}/${file}
      VERBATIM)
    list(APPEND sources ${base}.c ${base}.h)
  endforeach()
  add_library(${target} STATIC ${sources})
  target_link_libraries(${target} PUBLIC sandstorm_generated PkgConfig::PROTOBUF_C)
endfunction()
