# What every target of ours is compiled with. Generated code gets sandstorm_generated instead.
set(CMAKE_C_STANDARD 17)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

# Asserts stay in release builds: they catch our own bugs, and a daemon that stops at one restarts
# without loss, while one that goes on may not.
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O2 -g")

set(SANDSTORM_SANITIZE "" CACHE STRING "Sanitizers, as -fsanitize= takes them")

add_library(sandstorm_generated INTERFACE)
target_compile_definitions(sandstorm_generated INTERFACE _GNU_SOURCE)
if(SANDSTORM_FAILPOINTS)
  target_compile_definitions(sandstorm_generated INTERFACE SANDSTORM_FAILPOINTS)
endif()
target_include_directories(sandstorm_generated INTERFACE
  ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR}/generated)

if(SANDSTORM_SANITIZE)
  target_compile_definitions(sandstorm_generated INTERFACE SANDSTORM_SANITIZED)
  target_compile_options(sandstorm_generated INTERFACE
    -fsanitize=${SANDSTORM_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(sandstorm_generated INTERFACE -fsanitize=${SANDSTORM_SANITIZE})
endif()

# Hardening belongs to optimised builds: FORTIFY needs -O, and sanitizers replace the rest.
if(CMAKE_BUILD_TYPE MATCHES "Rel" AND NOT SANDSTORM_SANITIZE)
  target_compile_options(sandstorm_generated INTERFACE
    -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3 -fstack-protector-strong -fstack-clash-protection
    -fcf-protection=full -fPIE)
  target_link_options(sandstorm_generated INTERFACE
    -pie -Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack -Wl,-z,separate-code)
endif()
target_link_options(sandstorm_generated INTERFACE -Wl,--as-needed)

add_library(sandstorm_flags INTERFACE)
target_link_libraries(sandstorm_flags INTERFACE sandstorm_generated)
target_compile_options(sandstorm_flags INTERFACE
  -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition
  -Wvla -Wformat=2 -Wpointer-arith -Wundef -Wwrite-strings
  $<$<C_COMPILER_ID:GNU>:-Wlogical-op -Wduplicated-cond>)
