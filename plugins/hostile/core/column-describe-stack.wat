;; Calls itself without end when asked to describe itself, with nothing in memory: the engine's own stack overflows.
(module
  (memory (export "memory") 2)
  ;; Allocates by counting up, and never frees.
  (global $next (mut i32) (i32.const 65536))
  (func (export "cabi_realloc") (param i32 i32) (param $align i32) (param $size i32) (result i32)
    (local $start i32)
    (local.set $start (i32.and (i32.add (global.get $next) (i32.const 7)) (i32.const -8)))
    (global.set $next (i32.add (local.get $start) (local.get $size)))
    (block $enough
      (loop $grow
        (br_if $enough (i32.le_u (global.get $next) (i32.mul (memory.size) (i32.const 65536))))
        (br_if $grow (i32.ne (memory.grow (i32.const 1)) (i32.const -1)))
        (unreachable)))
    (local.get $start))
  (func $deeper (param $depth i32) (result i32)
    (i32.add (call $deeper (i32.add (local.get $depth) (i32.const 1))) (local.get $depth)))
  (func (export "alluvium:plugin/column-transform@0.1.0#describe") (result i32)
    (call $deeper (i32.const 0)))
  ;; Zeros: it reads and writes nothing.
  (func (export "alluvium:plugin/column-transform@0.1.0#configure") (param i32 i32) (result i32)
    (i32.const 64))
  ;; Zeros: it keeps all rows and changes nothing.
  (func (export "alluvium:plugin/column-transform@0.1.0#transform") (param i32 i32 i32) (result i32)
    (i32.const 128))
)
