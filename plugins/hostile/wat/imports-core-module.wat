;; Wants to be handed a core module.
(component
  (import "module" (core module))
  (instance $interface)
  (export "alluvium:plugin/column-transform@0.1.0" (instance $interface)))
