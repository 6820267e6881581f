;; Needs instructions whose results differ from machine to machine.
(component
  (core module
    (func (param v128 v128) (result v128)
      (i8x16.relaxed_swizzle (local.get 0) (local.get 1)))))
