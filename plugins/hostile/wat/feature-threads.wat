;; Needs shared memory.
(component
  (core module
    (memory (export "memory") 1 2 shared)))
