;; Needs tail calls.
(component
  (core module
    (func $again (return_call $again))))
