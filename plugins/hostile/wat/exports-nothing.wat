;; A component that exports neither interface.
(component)
