;; Needs a memory of 64-bit addresses.
(component
  (core module
    (memory (export "memory") i64 1)))
