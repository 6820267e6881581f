;; Answers, then traps while it is to free its answer.
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
  (data (i32.const 16) "\00\10\00\00\07\00\00\00\10\10\00\00\05\00\00\00\20\10\00\00\03\00\00\00")
  (data (i32.const 4096) "hostile")
  (data (i32.const 4112) "0.1.0")
  (data (i32.const 4128) "bad")
  (func (export "alluvium:plugin/column-transform@0.1.0#describe") (result i32)
    (i32.const 16))
  ;; Zeros: it reads and writes nothing.
  (func (export "alluvium:plugin/column-transform@0.1.0#configure") (param i32 i32) (result i32)
    (i32.const 64))
  ;; Zeros: it keeps all rows and changes nothing.
  (func (export "alluvium:plugin/column-transform@0.1.0#transform") (param i32 i32 i32) (result i32)
    (i32.const 128))
  (func (export "cabi_post_alluvium:plugin/column-transform@0.1.0#transform") (param i32)
    (unreachable))
)
