;; Never answers when the host asks it for memory.
(module
  (memory (export "memory") 2)
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
    (loop $for_ever (br $for_ever))
    (unreachable))
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
)
