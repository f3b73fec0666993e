"""A text of some 650 tokens, on which the quality of rounded weights is measured."""

TEXT = """\
The lighthouse at the end of the harbour had been dark for eleven years when Marta came back to the island. She
remembered the nights of her childhood, when its beam crossed the ceiling of her room every nine seconds, and how
she used to count between the flashes until she fell asleep. Now the lamp was gone, sold to a museum on the
mainland, and the tower stood empty above the rocks, its white paint peeling in long strips that the wind carried
out to sea.

Her brother met her at the ferry. He had grown heavier, and his beard was grey, but he walked with the same quick
steps as their father. They did not speak much on the way up to the house. The road was steeper than she remembered,
and the fields on both sides were full of stones. "Nobody plants potatoes any more," he said, as if she had asked.
"It is cheaper to buy them in the shop. The young people leave, and the old people watch television."

In the kitchen nothing had changed. The blue clock still hung over the stove, and it was still ten minutes slow.
Marta put the kettle on and looked out of the window, where the grass sloped down to the cliff. A ship was passing,
far away, so slowly that it seemed to stand still. She thought about the letter in her bag, which she had read so
often that the paper was coming apart at the folds. It said that the tower would be pulled down in the spring unless
somebody could be found who would take care of it.

Water boils at a lower temperature in the mountains, because the pressure of the air is lower there. At sea level it
boils at one hundred degrees; at three thousand metres it boils at about ninety. This is why it takes longer to cook
beans or rice in a high village, and why people who live there often use a pot with a tight lid. Inside such a pot
the steam cannot escape, the pressure rises, and with it the temperature of the water. The same principle is used in
hospitals, where instruments are cleaned with steam at one hundred and twenty degrees, which kills bacteria that
would survive in an open pan.

To make bread you need only four things: flour, water, salt and yeast. Mix three cups of flour with one and a half
cups of warm water, a spoon of salt and a little yeast. Work the dough with your hands for ten minutes, until it is
smooth and no longer sticks to the table. Then cover it with a cloth and let it rest in a warm place for one hour.
It should become twice as large. Shape it into a loaf, let it rest again for half an hour, and bake it in a hot oven
until the crust is brown and the loaf sounds hollow when you tap it from below. Let it cool before you cut it, even
if that is the hardest part.

When the meeting finally began, most of the chairs were empty. The mayor read the report in a flat voice, page after
page, and nobody asked a question until she came to the costs. Then an old fisherman in the last row stood up. He
said that he had found his way home by that light more times than he could count, and that a village which pulls
down its lighthouse should not be surprised if its children do not come back."""
